"""Bindings that stand still until the test lets them go on.

Commands print the file that is named in them, or the number of open connections. A FIFO is read until its writer closes it. A
connection reads its file of settings when it ends. Every pool shuts out its client. The file `nonsense` gets the number of the
process, which then breaks the protocol.
"""
import json, os, threading

class Error(Exception):
    errno = 108

class ObjectNotFound(Error):
    pass

class Pool:
    set_namespace = set_osdmap_full_try = lambda self, *arguments: None

    def __init__(self, connection):
        self.connection = connection

    def remove_object(self, name):
        raise Error

def read(path):
    with open(path, 'rb') as file:
        return file.read()

class Rados:
    open = set()

    def __init__(self, conffile, **how):
        self.conffile = conffile
        self.open.add(id(self))

    conf_set = connect = lambda self, *arguments: None

    def open_ioctx(self, name):
        return Pool(self)

    def mon_command(self, command, body):
        file = json.loads(command)['file']
        if file.endswith('nonsense'):
            with open(file, 'w') as said:
                said.write(str(os.getpid()))
            os.write(0, b'~' * 8)
            threading.Event().wait()
        return 0, read(file) if file else b'%d' % len(self.open), ''

    mgr_command = mon_command

    def shutdown(self):
        if id(self) in self.open:
            self.open.remove(id(self))
            if self.conffile:
                read(self.conffile)
