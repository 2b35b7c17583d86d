"""Recording the eager program (docs/recording.md): a module runs under PyTorch on the emulated GPU, and what it asks of the allocator is written down.

hollow.py   a module without its weights, from one process to another
device.py   where the emulated GPU is
worker.py   the process that runs the module; program.py what it runs
trace.py    the allocator's own record of it; calls.py the ATen calls, module scopes, source lines and saved tensors
lines.py    from records to the events of a step; archive.py the file
"""
