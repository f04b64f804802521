"""What servers, GPUs and storage counted while a benchmark ran: Prometheus text, a range export, AIPerf's own file."""
