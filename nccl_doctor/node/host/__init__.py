"""The host itself: limits, memory, clock, kernel log, SELinux, processes of the job."""
