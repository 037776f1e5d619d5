# SPDX-License-Identifier: Apache-2.0
"""`talk.py SERVER TEXT`: initializes a language server, opens TEXT as an .mlir file, prints what the server finds in it."""
import json
import subprocess
import sys

server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.stdin.flush()


def receive(wanted):
    while True:
        length = 0
        while (line := server.stdout.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if length == 0:
            sys.exit("the server closed its output")
        message = json.loads(server.stdout.read(length))
        if wanted(message):
            return message


send({"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}})
print("capabilities:", *sorted(receive(lambda m: m.get("id") == 1)["result"]["capabilities"]))
send({"method": "initialized", "params": {}})
document = {"uri": "file:///topology.mlir", "languageId": "mlir", "version": 1, "text": sys.argv[2] + "\n"}
send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
found = receive(lambda m: m.get("method") == "textDocument/publishDiagnostics")["params"]["diagnostics"]
print("findings:", [one["message"] for one in found])
send({"id": 2, "method": "shutdown"})
receive(lambda m: m.get("id") == 2)
send({"method": "exit"})
server.stdin.close()
sys.exit(server.wait(timeout=30))
