"""The host that kvbench runs on, and this process's ends that touch it."""
