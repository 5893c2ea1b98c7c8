# A device written from the design document alone: MQTT 3.1.1 over a socket, JSON, subprocess. python3 document.py PORT ID
import json, socket, struct, subprocess, sys, time

PORT, ID = int(sys.argv[1]), sys.argv[2]
COMMANDS, REPORTS = f"evoclaw/agents/{ID}/commands", f"evoclaw/agents/{ID}/reports"
sock = socket.create_connection(("127.0.0.1", PORT))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def text(value):
    data = value.encode()
    return struct.pack(">H", len(data)) + data

def send(kind, body):
    size, length = len(body), b""
    while True:
        size, digit = divmod(size, 128)
        length += bytes([digit | (128 if size else 0)])
        if not size:
            break
    sock.sendall(bytes([kind]) + length + body)

def receive(count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data

def packet():
    kind, size, shift = receive(1)[0], 0, 0
    while True:
        digit = receive(1)[0]
        size += (digit & 127) << shift
        shift += 7
        if digit < 128:
            return kind, receive(size)

def run(tool, parameters, timeout_ms):
    if tool != "bash":
        return {"status": "error", "tool": tool, "error": f"no tool {tool}", "error_type": "not_found"}
    started = time.time()
    try:
        done = subprocess.run(["sh", "-c", parameters["command"]], capture_output=True, text=True, timeout=timeout_ms / 1000)
    except subprocess.TimeoutExpired:
        return {"status": "error", "tool": tool, "error": f"Command timed out after {timeout_ms}ms", "error_type": "timeout"}
    elapsed = int((time.time() - started) * 1000)
    return {"status": "success", "tool": tool, "result": done.stdout, "stderr": done.stderr, "exit_code": done.returncode, "elapsed_ms": elapsed}

send(0x10, text("MQTT") + bytes([4, 2]) + struct.pack(">H", 60) + text(f"evoclaw-{ID}"))
packet()
send(0x82, struct.pack(">H", 1) + text(COMMANDS) + bytes([1]))
print("ready", flush=True)
while True:
    kind, body = packet()
    if kind >> 4 != 3:
        continue
    (size,) = struct.unpack(">H", body[:2])
    rest = body[2 + size:]
    if kind & 6:
        send(0x40, rest[:2])
        rest = rest[2:]
    command = json.loads(rest)
    if command["command"] == "tool":
        payload = command["payload"]
        report = run(payload["tool"], payload["parameters"], payload["timeout_ms"])
        send(0x30, text(REPORTS) + json.dumps(report).encode())
