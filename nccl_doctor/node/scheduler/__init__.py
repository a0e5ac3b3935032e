"""What a scheduler granted and how the job is launched."""
