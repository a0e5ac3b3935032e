"""The widgets and pages of the live screen."""
