"""Every file that onnxgrad opens, writes, replaces or removes on behalf of a name that it was given.

paths     is it a regular file, does it lie inside its folder
limits    how large a file and what it asks for may be, and how a user raises that
models    the only reader of ONNX files
external  the weights that a model keeps in other files
write     the only writer: a temporary name, the disk, then the real name
"""
