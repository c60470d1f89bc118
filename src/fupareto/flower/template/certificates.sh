#!/bin/sh
# Development certificates and keys for a Flower deployment on this machine. Not for production: the CA's key stays here.
#
#   certificates.sh DIR CLIENT...
#
# writes to DIR: ca.crt, server.crt, server.key   for the SuperLink (valid for localhost and 127.0.0.1), and
#                CLIENT.key, CLIENT.key.pub       for the authentication of each SuperNode (EC P-384, OpenSSH format), and
#                members.toml                     the membership file: which client is which key.
# Existing files are kept, so clients can be added later.
set -eu
umask 077
[ $# -ge 1 ] || { echo "usage: $0 DIR CLIENT..." >&2; exit 2; }
dir=$1
shift
mkdir -p "$dir"

if [ ! -e "$dir/server.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -days 365 -subj "/CN=Development CA" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout "$dir/ca.key" -out "$dir/ca.crt" 2>/dev/null
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -days 365 -subj "/CN=localhost" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -addext "basicConstraints=critical,CA:FALSE" \
        -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -keyout "$dir/server.key" -out "$dir/server.crt" 2>/dev/null
fi

for client; do
    [ -e "$dir/$client.key" ] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "$client" -f "$dir/$client.key"
done

{
    echo "# Which client is which key. Name this file in the run config: members=\"/absolute/path/of/members.toml\""
    echo "[clients]"
    for key in "$dir"/*.key.pub; do
        client=$(basename "$key" .key.pub)
        [ "$client" = "*" ] || echo "\"$client\" = \"$client.key.pub\""
    done
} > "$dir/members.toml"
