"""Reads the configuration: the YAML file of `trtllm-serve disaggregated`, environment, command line."""
