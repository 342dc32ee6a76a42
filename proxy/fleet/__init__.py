"""Several processes behind one port: supervisor, shared memory, control channel.

`supervisor` starts the processes and keeps them running; `process` is where one of them begins; `member` is what a
process knows of the others, and is there too when it is the only one. `commands` is the table of what can be asked of
a process; `channel` carries the questions.
"""
