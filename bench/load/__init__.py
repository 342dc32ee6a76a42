"""Load generator: one process that sends rendered requests and checks every answer."""
