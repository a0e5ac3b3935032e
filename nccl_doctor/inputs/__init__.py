"""From what the user named to streams of bytes and lines: folders, archives, compression, launcher prefixes."""
