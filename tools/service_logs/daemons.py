"""redis, sshd and PostgreSQL."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

from common import Service, free_port, wait_port


def quiet(*command, **options):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, **options)


class Redis(Service):
    name = "redis"

    def start(self):
        self.port = free_port()
        self.disk = self.tiny_disk("data", 1024)
        self.launch()

    def launch(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.disk, "--logfile", self.log,
             "--loglevel", "verbose", "--save", "1 1", "--timeout", "0"], stdout=subprocess.DEVNULL)
        wait_port(self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def say(self, *commands):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.settimeout(0.3)
            for command in commands:
                s.sendall(command.encode() + b"\r\n")
            with contextlib.suppress(OSError):
                s.recv(65536)

    def load(self):
        for _ in range(self.random.randint(2, 6)):
            self.say(f"SET item:{self.random.randrange(500)} {self.random.randrange(10**6)}", "GET item:1")
        time.sleep(0.1)

    def killed(self):
        self.process.kill()
        self.process.wait()
        self.launch()

    def disk_full(self):
        junk = self.disk / "junk"
        with contextlib.suppress(OSError), open(junk, "wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)
        self.say("SET a 1", "BGSAVE")
        time.sleep(1.5)
        junk.unlink()
        self.say("BGSAVE")
        time.sleep(0.5)

    def save_killed(self):
        self.say("CONFIG SET rdb-key-save-delay 5000", "SET a 2", "BGSAVE")
        time.sleep(0.3)
        for pid in subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.5)
        self.say("CONFIG SET rdb-key-save-delay 0", "BGSAVE")

    def replica(self):
        self.say(f"REPLICAOF 127.0.0.1 {free_port()}")
        time.sleep(1.5)
        self.say("REPLICAOF NO ONE")

    def output_limit(self):
        self.say("SETRANGE big 200000 x", "CONFIG SET client-output-buffer-limit 'normal 100000 0 0'", "GET big",
                 *["GET big"] * 100)
        self.say("CONFIG SET client-output-buffer-limit 'normal 0 0 0'", "DEL big")

    def kinds(self):
        return [
            ("service killed", self.killed, rb"oO0|Redis|Configuration|monotonic|Running|^ *[_.`'|]|Server|RDB|loaded|Ready|WARNING"),
            ("disk full", self.disk_full, rb"No space|[Ee]rror"),
            ("save killed", self.save_killed, rb"by signal|[Ee]rror"),
            ("replication broken", self.replica, rb"REPLICA|MASTER|SYNC|replica|Discarding|master"),
            ("another protocol", lambda: self.say("POST / HTTP/1.1", "Host: redis"), rb"SECURITY"),
            ("output limit", self.output_limit, rb"output buffer"),
        ]


class Sshd(Service):
    name = "sshd"

    def start(self):
        self.port = free_port()
        d = self.dir
        for key in ("host", "user"):
            quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / key)
        (d / "keys").write_text((d / "user.pub").read_text())
        (d / "keys").chmod(0o600)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        (d / "conf").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {d}/host\nAuthorizedKeysFile {d}/keys\nPidFile none\n"
            "UsePAM no\nPermitRootLogin yes\nStrictModes no\nLogLevel INFO\nMaxStartups 3:100:4\nMaxAuthTries 3\n"
            "Subsystem sftp internal-sftp\n")
        self.writer = open(self.log, "ab", buffering=0)
        self.launch()

    def launch(self):
        self.process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", self.dir / "conf"],
                                        stderr=subprocess.PIPE, bufsize=0)
        threading.Thread(target=self.prefix, args=(self.process,), daemon=True).start()
        wait_port(self.port)

    def prefix(self, process):  # as syslog writes it
        for line in iter(process.stderr.readline, b""):
            stamp = time.strftime("%b %e %H:%M:%S").encode()
            self.writer.write(stamp + b" gate sshd[%d]: " % process.pid + line.rstrip(b"\r\n") + b"\n")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def ssh(self, *extra, user="root", key=True, command="true"):
        auth = ["-i", self.dir / "user", "-o", "PasswordAuthentication=no"] if key else ["-o", "PubkeyAuthentication=no"]
        return ["ssh", "-F", "none", "-p", str(self.port), "-o", "StrictHostKeyChecking=no", "-o",
                "UserKnownHostsFile=/dev/null", *auth, *extra, f"{user}@127.0.0.1", command]

    def load(self):
        for _ in range(4):
            kind = self.random.random()
            if kind < 0.8:
                quiet(*self.ssh(command="exit %d" % self.random.randrange(2)))
            elif kind < 0.95:
                quiet("scp", "-q", "-F", "none", "-P", self.port, "-i", self.dir / "user", "-o", "StrictHostKeyChecking=no",
                      "-o", "UserKnownHostsFile=/dev/null", "root@127.0.0.1:/etc/hostname", self.dir / "copy")
            else:
                self.raw(b"")  # a health check: connects and goes

    def raw(self, data):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=3) as s:
            s.settimeout(1)
            if data:
                s.sendall(data)
                s.recv(512)
                s.sendall(b"\n\n")

    def passwords(self, user):
        for n in range(3):
            quiet("sshpass", "-p", f"guess{n}", *self.ssh(user=user, key=False))

    def killed(self):
        self.process.kill()
        self.process.wait()
        self.launch()

    def key_gone(self):
        os.rename(self.dir / "keys", self.dir / "keys.away")
        (self.dir / "keys").mkdir()
        quiet(*self.ssh())
        (self.dir / "keys").rmdir()
        os.rename(self.dir / "keys.away", self.dir / "keys")

    def flood(self):
        sockets = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(8)]
        time.sleep(0.5)
        for s in sockets:
            s.close()

    def kinds(self):
        return [
            ("service killed", self.killed, BROKEN),
            ("authentication failures", lambda: self.passwords("root"), BROKEN),
            ("unknown users", lambda: self.passwords("oracle"), BROKEN),
            ("key file broken", self.key_gone, BROKEN),
            ("another protocol", lambda: self.raw(b"GET / HTTP/1.0\r\n\r\n"), BROKEN),
            ("no common cipher", lambda: quiet(*self.ssh("-c", "aes128-cbc")), BROKEN),
            ("too many connections", self.flood, BROKEN),
        ]


# Nobody logs in while a fault is made: every line but those of an ordinary login belongs to it.
BROKEN = rb"^(?!.*(Accepted publickey|Received disconnect|Disconnected from user))."


class Postgres(Service):
    name = "postgres"

    def start(self):
        self.bin = sorted(pathlib.Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        self.port = free_port()
        self.data = self.dir / "data"
        self.data.mkdir()
        shutil.chown(self.data, "postgres")
        shutil.chown(self.log, "postgres")
        self.user("initdb", "-D", self.data, "-A", "trust")
        with open(self.data / "postgresql.conf", "a") as f:
            f.write(f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nlog_min_duration_statement = 0\n"
                    "log_checkpoints = on\nlog_connections = on\nlog_disconnections = on\nlog_lock_waits = on\n"
                    "deadlock_timeout = 200ms\nlog_line_prefix = '%m [%p] %u@%d '\nfsync = off\n")
        (self.data / "pg_hba.conf").write_text("host all mallory 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
        self.launch()
        disk = self.tiny_disk("tiny", 256, "postgres")
        self.sql(f"CREATE TABLE items (id int PRIMARY KEY, name text, left_over int CHECK (left_over >= 0)); "
                 f"INSERT INTO items SELECT i, 'item ' || i, 100000 FROM generate_series(1, 500) i; "
                 f"CREATE TABLE orders (id serial, item int REFERENCES items, n int); CREATE ROLE mallory LOGIN PASSWORD 'x'")
        self.sql(f"CREATE TABLESPACE tiny LOCATION '{disk}'")

    def user(self, program, *args, **options):
        return quiet("runuser", "-u", "postgres", "--", self.bin / program, *args, cwd="/", **options)

    def launch(self):
        self.writer = open(self.log, "ab", buffering=0)
        self.process = subprocess.Popen(["runuser", "-u", "postgres", "--", self.bin / "postgres", "-D", self.data],
                                        stdout=self.writer, stderr=self.writer, cwd="/")
        wait_port(self.port)
        time.sleep(0.5)

    def stop(self):
        self.user("pg_ctl", "-D", self.data, "-m", "fast", "stop")
        self.process.wait()

    def sql(self, text, user="postgres", wait=True):
        command = ["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-d", "postgres"]
        for statement in text.split("; "):
            command += ["-c", statement]
        if wait:
            quiet(*command, env={**os.environ, "PGPASSWORD": "guess"})
            return None
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def load(self):
        r = self.random
        kind = r.random()
        if kind < 0.45:
            self.sql("; ".join(f"SELECT name FROM items WHERE id = {r.randint(1, 500)}" for _ in range(r.randint(1, 4))))
        elif kind < 0.95:
            self.sql("; ".join(f"INSERT INTO orders (item, n) VALUES ({r.randint(1, 500)}, {r.randint(1, 9)}); "
                               f"UPDATE items SET left_over = left_over - 1 WHERE id = {r.randint(1, 500)}"
                               for _ in range(r.randint(1, 2))))
        else:
            self.sql("CHECKPOINT; SELECT count(*) FROM orders")

    def deadlock(self):
        first = self.sql("BEGIN; UPDATE items SET name = 'a' WHERE id = 1; SELECT pg_sleep(0.5); "
                         "UPDATE items SET name = 'a' WHERE id = 2; COMMIT", wait=False)
        time.sleep(0.2)
        self.sql("BEGIN; UPDATE items SET name = 'b' WHERE id = 2; UPDATE items SET name = 'b' WHERE id = 1; COMMIT")
        first.wait()

    def backend_killed(self):
        victim = self.sql("SELECT pg_sleep(30)", wait=False)
        time.sleep(0.5)
        main = (self.data / "postmaster.pid").read_text().split()[0]
        found = subprocess.run(["pgrep", "-P", main, "-f", "postgres: .*SELECT"], capture_output=True, text=True)
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        victim.wait()
        time.sleep(1)
        wait_port(self.port)

    def kinds(self):
        return [
            ("backend killed", self.backend_killed, UNUSUAL),
            ("disk full", lambda: self.sql("CREATE TABLE big (t text) TABLESPACE tiny; INSERT INTO big SELECT "
                                           "repeat('x', 900) FROM generate_series(1, 2000); DROP TABLE big"), UNUSUAL),
            ("authentication failures", lambda: [self.sql("SELECT 1", user="mallory") for _ in range(3)], UNUSUAL),
            ("deadlock", self.deadlock, UNUSUAL),
            ("constraint violated", lambda: self.sql("INSERT INTO orders (item, n) VALUES (977, 1)"), UNUSUAL),
            ("no such column", lambda: self.sql("SELECT price FROM items WHERE id = 3"), UNUSUAL),
        ]


# Nobody else is served while a fault is made: every line but those of coming and going belongs to it.
UNUSUAL = rb"^(?!.*(connection received|connection authorized|connection authenticated|disconnection: session))."
