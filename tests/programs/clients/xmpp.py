"""Two clients of an XMPP server: xmpp.py ADDRESS PORT COUNT. One sends so many messages to the
other, which answers each. Prints the answers."""

import base64
import re
import socket
import sys
import time

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Client:
    def __init__(self, name):
        self.connection = socket.create_connection((address, port), timeout=60)
        self.octets = b""
        self.open()
        secret = base64.b64encode(b"\0%s\0secret" % name).decode()
        auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%s</auth>" % secret
        self.say(auth)
        self.until(b"<success[^>]*/>")
        self.open()
        self.say("<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>")
        self.jid = self.until(b"<jid>(.*?)</jid></bind></iq>").group(1).decode()
        self.say("<presence/>")

    def open(self):
        self.say("<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' "
                 "xmlns:stream='http://etherx.jabber.org/streams'>")
        self.until(b"</stream:features>")

    def say(self, text):
        self.connection.sendall(text.encode())

    def until(self, pattern):
        """Reads up to the end of what matches, and returns the match."""
        while not (found := re.search(pattern, self.octets, re.DOTALL)):
            more = self.connection.recv(65536)
            if not more:
                raise EOFError(self.octets[-300:])
            self.octets += more
        self.octets = self.octets[found.end():]
        return found

    def message(self, to, body):
        self.say(f"<message to='{to}' type='chat'><body>{body}</body></message>")

    def body(self):
        return self.until(b"<body>(.*?)</body></message>").group(1).decode()


def client(name):
    # The server listens before the users are there.
    for _ in range(100):
        try:
            return Client(name)
        except EOFError:
            time.sleep(0.1)
    raise SystemExit("no client can log in")


one, two = client(b"one"), client(b"two")
for number in range(count):
    one.message(two.jid, f"{number} " + "x" * (number * 7919 % 5000))
    two.message(one.jid, two.body() + " back")
    print(one.body())
