#!/bin/bash
# Asks the server on this machine for /health with nothing but bash: 0 ready, 1 not. For containers without curl.
# The key of a locked server is not needed.
exec 3<>"/dev/tcp/127.0.0.1/${BALLAST_PORT:-8080}" || exit 1
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 5 _ status _ <&3
[ "$status" = 200 ]
