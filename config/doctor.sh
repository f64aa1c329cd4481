#!/bin/sh
# What `sallyport doctor` does, for images without Node: tries every way past the door from inside a sandbox, and says which are open.
# POSIX sh and what is there of bash, perl, python3, nc, curl, wget, openssl, ping; what it could not try is unknown, and says why.
# It changes nothing, shows no secret that it finds, and shows the sandbox's token to nobody but the proxy that the variables name.
set -u
LC_ALL=C
export LC_ALL

usage() {
  cat <<'USAGE'
Usage: doctor.sh [options], inside a sandbox

  --allowed <url>        a URL that the door lets through, to see one pass
  --probe <host:port>    try TCP to this in the place of public resolvers; once for each
  --proxy <url>          the proxy; left out, the one that the variables name
  --admin-port <port>    port of the admin listener (default: 9090)
  --only <ids>           these probes alone, with commas between
  --skip <ids>           all but these
  --timeout <seconds>    of each step, whole seconds (default: 3); a slow tool may take longer to start
  --json                 JSON on a terminal too
  --list                 the probes: id, what is tried and remedy, with tabs between
  --help

Examples:
  sh doctor.sh --allowed https://api.github.com/
  docker exec -i <container> sh -s -- --skip icmp --json < doctor.sh

Exit: 0 nothing is open, 5 a way is open, 1 the door does not work, 6 something could not be told, 2 wrong usage.
Sends a few packets to public resolvers (1.1.1.1, 8.8.8.8) and to addresses that nobody has (192.0.2.251, 2001:db8::251).
USAGE
}

# id, what is tried, remedy: the table of the README and of `sallyport doctor`
words() {
  cat <<'WORDS'
door	a request through the door, its certificate verified by the roots that the environment names	see that the proxy is ready, that the URL is allowed, and that the variables of `sallyport env` are set here
token	the proxy without a token, with one of a made-up sandbox, and with a wrong one of this sandbox	give each sandbox a token under `sandboxes`; one that is known by its `sources` may skip this probe
tcp-public	TCP to public addresses, 443 and 853, past the door	let the sandbox's network forward nothing: an internal network, a NetworkPolicy, or nftables with policy drop
tcp-private	TCP to the default gateway, the Kubernetes API and the proxy's host, on ports that are no door	have the firewall of the gateway and of the proxy's host take from the sandbox nothing but the ports of the doors
ipv6	TCP over IPv6 to public addresses, and the default route of IPv6	refuse IPv6 by the same rules as IPv4 (family inet in nftables), or turn it off on the network of the sandbox
quic	UDP 443 to public addresses, a packet that has QUIC name its versions	refuse UDP 443; reject it, so that HTTP/3 falls back to TCP at once
icmp	an ICMP echo to public addresses	refuse ICMP from the sandbox to the outside, for an echo carries whatever data one likes
dns-udp	another DNS server over UDP	lead UDP 53 to the DNS door, or refuse it
dns-tcp	another DNS server over TCP	lead TCP 53 to the DNS door, or refuse it
dns-name	whether the sandbox's own resolver resolves a name that is not allowed, and asks the outside for one that nobody has	make the DNS door the sandbox's only resolver, for each name that is asked for outside carries data out
metadata	the metadata services of clouds, directly and through the proxy	refuse 169.254.0.0/16 and fd00:ec2::254 on the network of the sandbox, and open them by no rule
admin	the admin listener on the proxy's host, on the gateway, on loopback, and through the proxy	let `admin.listen` name an address that the sandbox does not reach, or refuse its port there
ca-key	readable private keys beside and above the CA's certificate, and where folders are commonly mounted	mount the folder of `ca.certificate` alone, never the one that holds `ca.key`, and make a new CA now
state-files	the proxy's admin token, store key and store in the same places	keep the proxy's state in a volume that only the proxy mounts, and replace what has been readable here
capabilities	capabilities of this process that can take walls down (NET_ADMIN, SYS_ADMIN, SYS_MODULE, SYS_PTRACE)	drop all capabilities and set no-new-privileges (`cap_drop: [ALL]`, `allowPrivilegeEscalation: false`)
firewall	reading the rules with nft or iptables, which only those can who may change them; by sudo too	run the sandbox without NET_ADMIN and without sudo, and set its rules from outside or in an init container
docker-socket	sockets of container engines	mount no socket of a container engine into the sandbox: whoever speaks to it owns the host
cloud-credentials	credentials of clouds, clusters and code hosts in variables and in the usual files	give the sandbox placeholders, and put the credentials on at the door
no-proxy	NO_PROXY and no_proxy for more than loopback: wildcards, suffixes and ranges	let NO_PROXY name loopback alone, as `sallyport env` has it
WORDS
}

fail_usage() {
  printf 'doctor.sh: %s\n' "$1" >&2
  exit 2
}

ids() {
  words | while IFS='	' read -r id _; do printf '%s ' "$id"; done
}

known_ids() { # "a,b" and the option's name
  for id in $(printf '%s' "$1" | tr ',' ' '); do
    case " $(ids)" in *" $id "*) ;; *) fail_usage "$2: there is no probe \"$id\"; there are $(ids)" ;; esac
  done
}

ALLOWED= PROBES= PROXY= ADMIN_PORT=9090 ONLY= SKIP= T=3 JSON=
while [ $# -gt 0 ]; do
  case $1 in
    --json) JSON=1 ;;
    --list) words && exit 0 ;;
    --help | -h) usage && exit 0 ;;
    --allowed | --probe | --proxy | --admin-port | --only | --skip | --timeout)
      [ $# -ge 2 ] || fail_usage "$1 takes a value"
      case $1 in
        --allowed) ALLOWED=$2 ;;
        --probe) PROBES="$PROBES $2" ;;
        --proxy) PROXY=$2 ;;
        --admin-port) ADMIN_PORT=$2 ;;
        --only) known_ids "$2" --only && ONLY="$ONLY $(printf '%s' "$2" | tr ',' ' ')" ;;
        --skip) known_ids "$2" --skip && SKIP="$SKIP $(printf '%s' "$2" | tr ',' ' ')" ;;
        --timeout) T=$2 ;;
      esac
      shift
      ;;
    *) fail_usage "unknown option \"$1\" (--help tells what there is)" ;;
  esac
  shift
done
case $T in '' | *[!0-9]* | 0) fail_usage "--timeout \"$T\" is no whole number of seconds" ;; esac
case $ADMIN_PORT in '' | *[!0-9]*) fail_usage "--admin-port \"$ADMIN_PORT\" is no port" ;; esac
case $ALLOWED in '' | http://?* | https://?*) ;; *) fail_usage '--allowed is no http or https URL' ;; esac
for each in $PROBES; do
  case $each in ?*:[0-9]*) ;; *) fail_usage "--probe \"$each\" is no host:port; write it like \"203.0.113.7:443\"" ;; esac
done

# ---- what there is

TAB=$(printf '\t')
have() { command -v "$1" > /dev/null 2>&1; }

# Runs a command for so many seconds at most. 124 or more where it was ended.
bounded() {
  bound=$1
  shift
  if have timeout; then
    timeout "$bound" "$@"
    return
  fi
  "$@" &
  bounded_pid=$!
  (
    sleep "$bound"
    kill -9 "$bounded_pid"
  ) > /dev/null 2>&1 &
  killer_pid=$!
  wait "$bounded_pid" 2> /dev/null
  bounded_code=$?
  kill "$killer_pid" 2> /dev/null
  return "$bounded_code"
}

# What speaks raw TCP; what speaks UDP
TCP_TOOL= UDP_TOOL=
if have bash && bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1 < /dev/null | grep -qi 'refused\|unreachable\|permit'; then TCP_TOOL=bash
elif have perl && perl -MSocket -e 1 2> /dev/null; then TCP_TOOL=perl
elif have python3; then TCP_TOOL=python3
elif have nc; then TCP_TOOL=nc
fi
UDP_TOOL=$TCP_TOOL
# some builds of busybox have an nc without UDP
[ "$UDP_TOOL" = nc ] && ! nc -h 2>&1 < /dev/null | grep -q -e '-[a-zA-Z]*u' && UDP_TOOL=
CURL= WGET=
have curl && CURL=1
have wget && WGET=1
# GNU's tries again, and again
ONCE=
[ -n "$WGET" ] && wget --version 2> /dev/null | head -n 1 | grep -q GNU && ONCE='-t 1'

# A tool says "trying" when it has started: one that had no time to start has tried nothing. Perl and Python keep the time themselves.
SLOW=$((T + 10))
PERL_TALK='use Socket qw(:DEFAULT inet_pton pack_sockaddr_in6 AF_INET6); my ($kind, $host, $port, $words, $wait) = @ARGV; $| = 1; $SIG{ALRM} = sub { exit 0 }; alarm $wait; print "trying\n";
$words =~ s/%%/%/g; $words =~ s/\\r/\r/g; $words =~ s/\\n/\n/g; $words =~ s/\\([0-7]{3})/chr oct $1/ge;
my $six = $host =~ /:/; my $raw = $six ? inet_pton(AF_INET6, $host) : inet_aton($host); exit 9 unless $raw;
socket(S, $six ? AF_INET6 : AF_INET, $kind eq "udp" ? SOCK_DGRAM : SOCK_STREAM, 0) or exit 9;
connect(S, $six ? pack_sockaddr_in6($port, $raw) : pack_sockaddr_in($port, $raw)) or exit 9;
print "connected\n" if $kind eq "tcp"; syswrite(S, $words) if length $words; exit 0 if $kind eq "reach";
my $got; while (sysread(S, $got, 4096)) { print $got; last if $kind eq "udp"; }'
PYTHON_TALK='import os, signal, socket, sys
kind, host, port, words, wait = sys.argv[1:6]
signal.signal(signal.SIGALRM, lambda *_: os._exit(0)); signal.alarm(int(wait)); print("trying", flush=True)
data = words.replace("%%", "%").encode("latin1").decode("unicode_escape").encode("latin1")
out = sys.stdout.buffer
try:
  family, _, _, _, where = socket.getaddrinfo(host, int(port), 0, socket.SOCK_STREAM)[0]
  s = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
  s.settimeout(float(wait)); s.connect(where)
except OSError: sys.exit(9)
if kind == "tcp": out.write(b"connected\n"); out.flush()
try:
  if data: s.sendall(data)
  while True:
    got = s.recv(4096)
    if not got: break
    out.write(got); out.flush()
    if kind == "udp": break
except OSError: pass'

# talk HOST PORT FORMAT: says what the printf format stands for; prints "trying", "connected" and what came back. 2 no tool.
talk() {
  case $TCP_TOOL in
    bash)
      # shellcheck disable=SC2016
      bounded "$T" bash -c 'echo trying; exec 3<>"/dev/tcp/$1/$2" || exit 9; echo connected; printf "$3" >&3; exec cat <&3' talk "$1" "$2" "$3" 2> /dev/null < /dev/null
      ;;
    perl) bounded "$SLOW" perl -e "$PERL_TALK" tcp "$1" "$2" "$3" "$T" 2> /dev/null < /dev/null ;;
    python3) bounded "$SLOW" python3 -c "$PYTHON_TALK" tcp "$1" "$2" "$3" "$T" 2> /dev/null < /dev/null ;;
    nc)
      # it does not say when it is connected: a connection that nothing came over is looked for once more, without words
      # shellcheck disable=SC2059
      nc_heard=$({ printf "$3"; sleep "$T"; } | bounded "$T" nc -w "$T" "$1" "$2" 2> /dev/null | tr -d '\000')
      echo trying
      [ -n "$nc_heard" ] || nc_reach "$1" "$2" || return 0
      printf 'connected\n%s' "$nc_heard"
      ;;
    *) return 2 ;;
  esac
  return 0
}

nc_reach() {
  nc_wait=$((T > 1 ? T - 1 : 1))
  bounded "$T" nc -w "$nc_wait" "$1" "$2" < /dev/null > /dev/null 2>&1
  case $? in 0 | 124 | 137 | 143) return 0 ;; *) return 1 ;; esac
}

in_url() { case $1 in *:*) printf '[%s]' "$1" ;; *) printf '%s' "$1" ;; esac; }

# What `talk` printed, without its first words. 1 not connected, 3 the tool had no time to start.
after_words() {
  case $1 in
    trying*connected*) printf '%s' "${1#*connected}" ;;
    trying*) return 1 ;;
    *) return 3 ;;
  esac
}

# reach HOST PORT: 0 somebody takes the connection, 1 nobody, 2 no tool, 3 no time
reach() {
  case $TCP_TOOL in
    bash)
      # shellcheck disable=SC2016
      reached=$(bounded "$T" bash -c 'echo trying; exec 3<>"/dev/tcp/$1/$2" && echo connected' reach "$1" "$2" 2> /dev/null < /dev/null)
      after_words "$reached" > /dev/null
      return
      ;;
    perl | python3)
      after_words "$(talk "$1" "$2" '' | head -n 2)" > /dev/null
      return
      ;;
    nc) nc_reach "$1" "$2" && return 0 || return 1 ;;
  esac
  if [ -n "$CURL" ]; then
    connected=$(curl -s -g --noproxy '*' -m "$T" -o /dev/null -w '%{time_connect}' "http://$(in_url "$1"):$2/" 2> /dev/null < /dev/null)
    case $connected in '' | 0 | 0.000000 | 0,000000) return 1 ;; *) return 0 ;; esac
  fi
  if [ -n "$WGET" ]; then
    # shellcheck disable=SC2086
    said=$(bounded "$((T + 1))" env http_proxy= wget $ONCE -O /dev/null -T "$T" "http://$(in_url "$1"):$2/" 2>&1 < /dev/null | head -n 20)
    case $said in
      *'connected.'* | *'server returned error'* | *'error getting response'*) return 0 ;;
      *) return 1 ;;
    esac
  fi
  return 2
}

# http HOST PORT TARGET NAMED [FIELD]: the head of the answer to a GET, without CR. 1 not connected, 2 no tool, 3 no time, 4 no HTTP came back.
http() {
  field=${5:+$5\\r\\n}
  target=$(printf '%s' "$3" | sed 's/%/%%/g')
  if [ -n "$TCP_TOOL" ]; then
    answer=$(talk "$1" "$2" "GET $target HTTP/1.1\\r\\nHost: $4\\r\\n${field}Connection: close\\r\\n\\r\\n" | head -c 4096 | tr -d '\000\r')
    answer=$(after_words "$answer") || return
    case $answer in *HTTP/1.*) printf '%s\n' "$answer" && return 0 ;; *) return 4 ;; esac
  fi
  case $3 in http://*) at=$3 by=http://$(in_url "$1"):$2 ;; *) at=http://$(in_url "$1"):$2$3 by= ;; esac
  if [ -n "$CURL" ]; then
    answer=$(curl -s -i -g -m "$T" ${by:+--proxy "$by"} ${by:---noproxy '*'} -H "Host: $4" ${5:+-H "$5"} "$at" 2> /dev/null < /dev/null | head -c 4096 | tr -d '\000\r')
  elif [ -n "$WGET" ]; then
    # shellcheck disable=SC2086
    answer=$(bounded "$((T + 1))" env http_proxy="$by" wget $ONCE -S -q -O - -T "$T" --header "Host: $4" ${5:+--header "$5"} "$at" 2>&1 < /dev/null | head -c 4096 | tr -d '\000\r' | sed 's/^  *//')
  else
    return 2
  fi
  case $answer in *HTTP/1.*) printf '%s\n' "$answer" && return 0 ;; esac
  reach "$1" "$2" && return 4
  return 1
}

is_refusal() { printf '%s\n' "$1" | grep -qi '^x-sallyport-reason:'; }
status_of() { printf '%s\n' "$1" | sed -n 's/^HTTP\/1\.[01] \([0-9][0-9][0-9]\).*/\1/p' | head -n 1; }

# udp HOST PORT FORMAT: what came back, in hexadecimal; nothing where nothing did; "late" where the tool had no time to start. 2 no tool.
TRYING=747279696e670a
udp() {
  [ -n "$UDP_TOOL" ] || return 2
  got=$(
    case $UDP_TOOL in
      # shellcheck disable=SC2016
      bash) bounded "$T" bash -c 'echo trying; exec 3<>"/dev/udp/$1/$2" || exit 9; printf "$3" >&3; exec dd bs=2048 count=1 <&3 2> /dev/null' udp "$1" "$2" "$3" 2> /dev/null < /dev/null ;;
      perl) bounded "$SLOW" perl -e "$PERL_TALK" udp "$1" "$2" "$3" "$T" 2> /dev/null < /dev/null ;;
      python3) bounded "$SLOW" python3 -c "$PYTHON_TALK" udp "$1" "$2" "$3" "$T" 2> /dev/null < /dev/null ;;
      nc)
        echo trying
        # shellcheck disable=SC2059
        { printf "$3"; sleep "$T"; } | bounded "$T" nc -u -w "$T" "$1" "$2" 2> /dev/null
        ;;
    esac | od -An -v -tx1 | tr -d ' \n'
  )
  case $got in "$TRYING"*) printf '%s' "${got#"$TRYING"}" ;; *) printf late ;; esac
}

# Probes print lines: result, place and why, with tabs between.
tell() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }

NO_TCP='there is no bash with /dev/tcp, perl, python3, nc, curl or wget'
NO_TIME='the tool had no time to start; give it more with --timeout'
NO_RAW='there is no bash with /dev/tcp, perl, python3 or nc'
NO_UDP='there is no bash with /dev/udp, perl, python3 or nc with -u'
FOR_ALL='led to the door, which answers for addresses that nobody has too'

# ---- where this is

file_has() { [ -r "$2" ] && [ -f "$2" ] && grep -q -e "$1" "$2" 2> /dev/null; }

set_proxy() {
  for value in "$PROXY" "${https_proxy:-}" "${HTTPS_PROXY:-}" "${http_proxy:-}" "${HTTP_PROXY:-}" "${all_proxy:-}" "${ALL_PROXY:-}"; do
    [ -n "$value" ] && break
  done
  PROXY_URL=$value PROXY_HOST='' PROXY_PORT='' PROXY_USER='' PROXY_PASSWORD=''
  [ -n "$value" ] || return 0
  rest=${value#*://}
  rest=${rest%%/*}
  case $rest in
    *@*)
      userinfo=${rest%@*} rest=${rest##*@}
      PROXY_USER=${userinfo%%:*}
      case $userinfo in *:*) PROXY_PASSWORD=${userinfo#*:} ;; esac
      ;;
  esac
  case $rest in
    \[*) PROXY_HOST=${rest#\[} PROXY_HOST=${PROXY_HOST%%\]*} PROXY_PORT=${rest##*\]} PROXY_PORT=${PROXY_PORT#:} ;;
    *:*) PROXY_HOST=${rest%:*} PROXY_PORT=${rest##*:} ;;
    *) PROXY_HOST=$rest ;;
  esac
  PROXY_PORT=${PROXY_PORT:-80}
}

# The address is in hexadecimal, the lowest byte first.
gateways() {
  [ -r /proc/net/route ] || return 0
  while read -r _ destination gateway _; do
    [ "$destination" = 00000000 ] && [ "$gateway" != 00000000 ] || continue
    a=${gateway%??????} b=${gateway%????} c=${gateway%??}
    printf '%d.%d.%d.%d ' "0x${gateway#??????}" "0x${c#????}" "0x${b#??}" "0x$a"
  done < /proc/net/route
}

nameservers() {
  [ -r /etc/resolv.conf ] || return 0
  sed -n 's/^[[:space:]]*nameserver[[:space:]][[:space:]]*\([0-9a-fA-F.:]*\).*/\1/p' /etc/resolv.conf | tr '\n' ' '
}

ca_files() {
  for file in "${NODE_EXTRA_CA_CERTS:-}" "${DENO_CERT:-}" "${SSL_CERT_FILE:-}" "${CURL_CA_BUNDLE:-}" "${REQUESTS_CA_BUNDLE:-}" \
    "${PIP_CERT:-}" "${GIT_SSL_CAINFO:-}" "${AWS_CA_BUNDLE:-}" "${CARGO_HTTP_CAINFO:-}" "${npm_config_cafile:-}" "${GRPC_DEFAULT_SSL_ROOTS_FILE_PATH:-}"; do
    [ -n "$file" ] && printf '%s\n' "$file"
  done
}

# The first file with a single certificate in it, or ca.pem beside a bundle.
ca_alone() {
  { ca_files; ca_files | while read -r file; do printf '%s\n' "$(dirname "$file")/ca.pem"; done; } | while read -r file; do
    [ -r "$file" ] && [ "$(grep -c 'BEGIN CERTIFICATE' "$file" 2> /dev/null)" = 1 ] && printf '%s' "$file" && break
  done
}

is_loopback() { case $1 in 127.* | ::1 | localhost) return 0 ;; *) return 1 ;; esac; }

set_proxy
GATEWAYS=$(gateways)
NAMESERVERS=$(nameservers)
CA=$(ca_alone)
if [ -n "$PROXY_HOST" ]; then PROXY_HOSTS=$PROXY_HOST; else PROXY_HOSTS="$GATEWAYS $NAMESERVERS"; fi
# Some networks use a documentation range for themselves: there, another one.
NOWHERE=192.0.2.251
for each in 203.0.113 198.51.100 192.0.2; do
  case " $GATEWAYS $NAMESERVERS $PROXY_HOST $(cat /proc/net/fib_trie 2> /dev/null | tr -s ' \n' ' ')" in *" $each."*) ;; *) NOWHERE=$each.251 ;; esac
done
nowhere_for() { case $1 in *:*) printf '2001:db8::251' ;; *) printf '%s' "$NOWHERE" ;; esac; }

NEWER_CURL=
[ -n "$CURL" ] && curl -V 2> /dev/null | head -n 1 | grep -q 'OpenSSL\|LibreSSL\|BoringSSL\|quictls' && NEWER_CURL=1

# tls_mark HOST PORT: whose certificate: door, another, none or untold
tls_mark() {
  if [ -n "$NEWER_CURL" ]; then
    said=$(curl -s -k -g --noproxy '*' -m "$T" ${CA:+--cacert "$CA"} -o /dev/null -w '%{time_appconnect} %{ssl_verify_result}' "https://$(in_url "$1"):$2/" 2> /dev/null < /dev/null)
    case $said in
      '' | 0.000000\ *) echo none ;;
      *\ 0) if [ -n "$CA" ]; then echo door; else echo another; fi ;;
      *) echo another ;;
    esac
  elif have openssl; then
    said=$(bounded "$T" openssl s_client -connect "$(in_url "$1"):$2" ${CA:+-CAfile "$CA" -no-CApath} 2> /dev/null < /dev/null)
    case $said in
      *'BEGIN CERTIFICATE'*) case $said in *'Verify return code: 0 '*) echo door ;; *) echo another ;; esac ;;
      *) echo none ;;
    esac
  else
    echo untold
  fi
}

try_tcp() {
  place=$(in_url "$1"):$2
  reach "$1" "$2"
  case $? in
    1) tell closed "$place" 'nobody takes the connection' && return ;;
    2) tell unknown "$place" "$NO_TCP" && return ;;
    3) tell unknown "$place" "$NO_TIME" && return ;;
  esac
  if [ "$2" = 80 ] && heard=$(http "$1" 80 / example.com) && is_refusal "$heard"; then
    tell closed "$place" 'led to the door'
    return
  fi
  mine=untold
  [ "$2" = 80 ] || mine=$(tls_mark "$1" "$2")
  if [ "$mine" = door ]; then
    tell closed "$place" 'led to the door'
  elif ! reach "$(nowhere_for "$1")" "$2"; then
    tell open "$place" 'somebody takes the connection'
  elif [ "$mine" = another ] && [ -z "$CA" ]; then
    tell unknown "$place" 'somebody answers for every address, and no variable names the CA to know the door by'
  elif [ "$mine" = another ]; then
    tell open "$place" "answered with a certificate that is not the door's"
  elif [ "$mine" = untold ]; then
    tell unknown "$place" 'somebody answers for every address, and there is no curl or openssl to tell whose certificate it is'
  elif [ "$mine" = "$(tls_mark "$(nowhere_for "$1")" "$2")" ]; then
    tell closed "$place" "$FOR_ALL"
  else
    tell unknown "$place" 'somebody answers for every address, but for this one in another way'
  fi
}

# ---- the door

base64_of() {
  if have base64; then printf '%s' "$1" | base64 | tr -d '\n'
  elif have openssl; then printf '%s' "$1" | openssl base64 -A
  elif have python3; then python3 -c 'import base64, sys; print(base64.b64encode(sys.argv[1].encode()).decode(), end="")' "$1"
  elif have perl; then perl -MMIME::Base64 -e 'print encode_base64($ARGV[0], "")' "$1"
  else return 1
  fi
}

decoded() {
  case $1 in
    *%*) printf '%b' "$(printf '%s' "$1" | sed 's/\\/\\\\/g' | percent_to_octal)" ;;
    *) printf '%s' "$1" ;;
  esac
}
percent_to_octal() {
  read -r text || :
  while :; do
    case $text in
      *%[0-9A-Fa-f][0-9A-Fa-f]*)
        before=${text%%%[0-9A-Fa-f][0-9A-Fa-f]*} after=${text#"$before"%}
        text=$before$(printf '\\0%o' "0x${after%"${after#??}"}")${after#??}
        ;;
      *) break ;;
    esac
  done
  printf '%s' "$text"
}

# authorization USER PASSWORD: the field, or nothing where there is neither
authorization() {
  [ -n "$1$2" ] || return 0
  encoded=$(base64_of "$1:$2") || return 1
  printf 'Proxy-Authorization: Basic %s' "$encoded"
}
own_authorization() { authorization "$(decoded "$PROXY_USER")" "$(decoded "$PROXY_PASSWORD")"; }

# connect_status HOST PORT FIELD: the answer's head to a CONNECT for a name that nobody has
connect_head() {
  field=${3:+$3\\r\\n}
  [ -n "$TCP_TOOL" ] || return 2
  heard=$(talk "$1" "$2" "CONNECT doctor.invalid:443 HTTP/1.1\\r\\nHost: doctor.invalid:443\\r\\n${field}\\r\\n" | head -c 4096 | tr -d '\000\r')
  heard=$(after_words "$heard") || return
  case $heard in *HTTP/1.*) printf '%s\n' "$heard" ;; *) return 1 ;; esac
}

probe_door() {
  hint='name an allowed URL with --allowed to see one pass'
  if [ -n "$ALLOWED" ]; then
    origin=${ALLOWED%%\?*}
    if [ -n "$CURL" ]; then
      heard=$(curl -s -g -m "$T" ${PROXY_URL:+--proxy "$PROXY_URL"} -o /dev/null -D - "$ALLOWED" 2> /dev/null < /dev/null | tr -d '\000\r'; exit 0)
      curl -s -g -m "$T" ${PROXY_URL:+--proxy "$PROXY_URL"} -o /dev/null "$ALLOWED" > /dev/null 2>&1 < /dev/null
      code=$?
      if is_refusal "$heard"; then
        tell broken "$origin" "refused: $(printf '%s\n' "$heard" | sed -n 's/^[Xx]-[Ss]allyport-[Rr]eason: *\([a-z_]*\).*/\1/p' | head -n 1)"
      elif [ "$code" = 0 ]; then tell works "$origin" "answered $(printf '%s\n' "$heard" | sed -n 's/^HTTP\/[0-9.]* \([0-9]*\).*/\1/p' | tail -n 1)"
      elif [ "$code" = 60 ]; then tell broken "$origin" 'the certificate is not trusted'
      else tell broken "$origin" "curl ends with $code"
      fi
    elif [ -n "$WGET" ]; then
      # shellcheck disable=SC2086
      said=$(bounded "$((T + 1))" env ${PROXY_URL:+"http_proxy=$PROXY_URL" "https_proxy=$PROXY_URL"} wget $ONCE -S -O /dev/null -T "$T" "$ALLOWED" 2>&1 < /dev/null | sed 's/^  *//')
      if is_refusal "$said"; then tell broken "$origin" 'refused by the door'
      elif [ -n "$(status_of "$said")" ]; then tell works "$origin" "answered $(printf '%s\n' "$said" | sed -n 's/^HTTP\/1\.[01] \([0-9]*\).*/\1/p' | tail -n 1)"
      else tell broken "$origin" 'wget gets no answer'
      fi
    else
      tell unknown "$origin" 'there is no curl or wget'
    fi
    return
  fi
  if [ -n "$PROXY_HOST" ]; then
    place="CONNECT doctor.invalid:443 by $(in_url "$PROXY_HOST"):$PROXY_PORT"
    heard=$(connect_head "$PROXY_HOST" "$PROXY_PORT" "$(own_authorization)")
    case $? in
      1) tell broken "$place" 'the proxy does not answer' && return ;;
      2) tell unknown "$place" "$NO_RAW" && return ;;
      3) tell unknown "$place" "$NO_TIME" && return ;;
    esac
    if [ "$(status_of "$heard")" = 407 ]; then tell broken "$place" 'the token is missing or not taken'
    elif is_refusal "$heard"; then tell works "$place" "it answers, with a refusal; $hint"
    else tell unknown "$place" "it answers $(status_of "$heard"), and not with a refusal of Sallyport; $hint"
    fi
    return
  fi
  place="TLS and HTTP to $NOWHERE, for a transparent door"
  if [ "$(tls_mark "$NOWHERE" 443)" = door ] && [ -n "$CA" ]; then tell works "$place" "it answers; $hint"
  elif heard=$(http "$NOWHERE" 80 / doctor.invalid) && is_refusal "$heard"; then tell works "$place" "it answers, with a refusal; $hint"
  else tell unknown "$place" "no variable names a proxy, and no transparent door was met; $hint"
  fi
}

try_token() { # host port what field
  place="$3 at $(in_url "$1"):$2"
  heard=$(connect_head "$1" "$2" "$4")
  case $? in
    1) [ -z "$PROXY_HOST" ] || tell unknown "$place" 'the proxy does not answer'; return ;;
    2) tell unknown "$place" "$NO_RAW"; return ;;
    3) tell unknown "$place" "$NO_TIME"; return ;;
  esac
  if [ "$(status_of "$heard")" = 407 ]; then tell closed "$place" 'refused with 407'
  elif [ -n "$PROXY_HOST" ] || is_refusal "$heard"; then tell open "$place" "answered $(status_of "$heard") and not 407"
  fi
}
probe_token() {
  # user name and password sallyport-doctor-made-this-up
  made='Proxy-Authorization: Basic c2FsbHlwb3J0LWRvY3Rvci1tYWRlLXRoaXMtdXA6c2FsbHlwb3J0LWRvY3Rvci1tYWRlLXRoaXMtdXA='
  if [ -z "$PROXY_HOST" ]; then
    for each in $PROXY_HOSTS 127.0.0.1; do try_token "$each" 8080 'a made-up sandbox and token' "$made" & done
    wait
    return
  fi
  try_token "$PROXY_HOST" "$PROXY_PORT" 'a made-up sandbox and token' "$made" &
  # Without a token of its own a sandbox is known by its address, or is the only one: that none is asked for is no hole.
  if [ -n "$PROXY_PASSWORD" ]; then
    try_token "$PROXY_HOST" "$PROXY_PORT" 'no token' '' &
    if wrong=$(authorization "$(decoded "$PROXY_USER")" sallyport-doctor-made-this-up); then
      try_token "$PROXY_HOST" "$PROXY_PORT" 'this sandbox and a made-up token' "$wrong" &
    fi
  fi
  wait
}

try_by_proxy() { # URL
  place="$1 through the proxy"
  named=${1#http://}
  heard=$(http "$PROXY_HOST" "$PROXY_PORT" "$1" "${named%%/*}" "$(own_authorization)")
  case $? in
    0) if is_refusal "$heard"; then tell closed "$place" 'refused by the door'; else tell open "$place" "answered $(status_of "$heard"), which is no refusal of the door"; fi ;;
    2) tell unknown "$place" "$NO_TCP" ;;
    3) tell unknown "$place" "$NO_TIME" ;;
    *) tell unknown "$place" 'the proxy does not answer' ;;
  esac
}

try_inside() { # host port path what-is-open
  place=$(in_url "$1"):$2
  heard=$(http "$1" "$2" "$3" "$place")
  case $? in
    1) tell closed "$place" 'nobody takes the connection' && return ;;
    2) tell unknown "$place" "$NO_TCP" && return ;;
    3) tell unknown "$place" "$NO_TIME" && return ;;
    0)
      if [ "$4" = admin ]; then
        case $heard in *'"status":"ok"'* | *'"status": "ok"'*) tell open "$place" 'the admin listener answers' && return ;; esac
      elif is_refusal "$heard"; then tell closed "$place" 'refused by the door' && return
      else tell open "$place" "answered $(status_of "$heard")" && return
      fi
      ;;
  esac
  if [ "$4" = admin ] && is_loopback "$1"; then tell closed "$place" 'something of this machine, no admin listener, answers'
  elif reach "$(nowhere_for "$1")" "$2"; then tell closed "$place" 'led elsewhere, as addresses that nobody has are'
  else tell open "$place" 'somebody takes the connection'
  fi
}

unique() { for each in "$@"; do printf '%s\n' "$each"; done | sort -u; }

probe_admin() {
  # shellcheck disable=SC2086
  for each in $(unique $PROXY_HOSTS $GATEWAYS 127.0.0.1 ::1); do try_inside "$each" "$ADMIN_PORT" /healthz admin & done
  if [ -n "$PROXY_HOST" ]; then
    for each in $(unique 127.0.0.1 "$PROXY_HOST"); do try_by_proxy "http://$(in_url "$each"):$ADMIN_PORT/healthz" & done
  fi
  wait
}

probe_metadata() {
  for each in 169.254.169.254 fd00:ec2::254 169.254.170.2 100.100.100.200 metadata.google.internal; do try_inside "$each" 80 / metadata & done
  [ -z "$PROXY_HOST" ] || try_by_proxy http://169.254.169.254/ &
  wait
}

# ---- past the door

probe_tcp_public() {
  for each in ${PROBES:-1.1.1.1:443 8.8.8.8:443 1.1.1.1:853}; do
    host=${each%:*} host=${host#\[}
    try_tcp "${host%\]}" "${each##*:}" &
  done
  wait
}

probe_tcp_private() {
  # shellcheck disable=SC2086
  for host in $(unique $GATEWAYS $PROXY_HOST); do
    is_loopback "$host" && continue
    for port in 22 80 443 2375 2376 2379 3306 5432 6379 6443 10250 10255; do
      case " $PROXY_HOSTS " in
        *" $host "*) case " 53 80 443 5353 8080 8081 8443 $PROXY_PORT " in *" $port "*) continue ;; esac ;;
      esac
      try_tcp "$host" "$port" &
    done
  done
  [ -z "${KUBERNETES_SERVICE_HOST:-}" ] || try_tcp "$KUBERNETES_SERVICE_HOST" "${KUBERNETES_SERVICE_PORT:-443}" &
  wait
}

probe_ipv6() {
  for each in 2606:4700:4700::1111 2001:4860:4860::8888; do try_tcp "$each" 443 & done
  wait
  route='there is no default route of IPv6'
  if [ -r /proc/net/ipv6_route ]; then
    while read -r destination prefix _ _ _ _ _ _ _ device; do
      [ "$destination$prefix" = 0000000000000000000000000000000000 ] && [ "$device" != lo ] && route='there is a default route of IPv6'
    done < /proc/net/ipv6_route
  fi
  tell closed 'the route' "$route"
}

# A long header with a reserved version, 1200 bytes: a server names the versions that it speaks (RFC 9000, section 6.1).
QUIC="\\300\\032\\052\\072\\112\\010sallypor\\010doctor!!$(printf '%01177d' 0)"
try_quic() {
  place="UDP $1:443"
  heard=$(udp "$1" 443 "$QUIC")
  if [ -z "$UDP_TOOL" ]; then tell unknown "$place" "$NO_UDP"
  elif [ "$heard" = late ]; then tell unknown "$place" "$NO_TIME"
  elif [ -z "$heard" ]; then tell closed "$place" 'nothing came back'
  elif control=$(udp "$NOWHERE" 443 "$QUIC") && [ -n "$control" ] && [ "$control" != late ]; then tell closed "$place" "$FOR_ALL"
  else tell open "$place" 'something came back'
  fi
}
probe_quic() {
  for each in 1.1.1.1 8.8.8.8; do try_quic "$each" & done
  wait
}

# Exit 0 answered, 1 not, 3 may not send. The kernel knows a datagram socket by its port; a raw one hears everybody's.
PERL_ECHO='use Socket; my ($host, $wait) = @ARGV; my $raw = 0;
socket(S, PF_INET, SOCK_DGRAM, 1) or ($raw = 1 and socket(S, PF_INET, SOCK_RAW, 1)) or exit 3;
my $packet = pack("C2 n3 a6", 8, 0, 0, 4711, 1, "doctor"); my $sum = 0; $sum += $_ for unpack("n*", $packet);
$sum = ($sum >> 16) + ($sum & 0xffff); $packet = pack("C2 n3 a6", 8, 0, ~$sum & 0xffff, 4711, 1, "doctor");
my $to = inet_aton($host) or exit 1; send(S, $packet, 0, pack_sockaddr_in(0, $to)) or exit 1; my $until = time + $wait;
while ((my $left = $until - time) > 0) { my $in = ""; vec($in, fileno(S), 1) = 1; select($in, undef, undef, $left) or exit 1;
  my $from = recv(S, my $got, 1500, 0) or exit 1; my (undef, $who) = unpack_sockaddr_in($from);
  exit 0 if $who eq $to and ord(substr($got, $raw ? 20 : 0, 1)) == 0; } exit 1;'
PYTHON_ECHO='import socket, struct, sys, time
host, wait = sys.argv[1], float(sys.argv[2])
try: s, raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1), 0
except OSError:
  try: s, raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), 20
  except OSError: sys.exit(3)
packet = lambda c: struct.pack("!BBHHH6s", 8, 0, c, 4711, 1, b"doctor")
total = sum(struct.unpack("!7H", packet(0))); total = (total >> 16) + (total & 0xffff)
until = time.time() + wait
try:
  s.sendto(packet(~total & 0xffff), (host, 0))
  while True:
    s.settimeout(max(0.01, until - time.time())); got, who = s.recvfrom(1500)
    if who[0] == host and got[raw] == 0: sys.exit(0)
except OSError: sys.exit(1)'
try_icmp() {
  patience=$((T > 1 ? T - 1 : 1))
  if have ping; then
    said=$(bounded "$T" ping -n -c 1 -W "$patience" "$1" 2>&1 < /dev/null)
    code=$?
    [ "$code" != 0 ] || { tell open "$1" 'an echo came back (ping)' && return; }
    case $said in
      *sendmsg* | *sendto*) tell closed "$1" 'no echo came back (ping)' && return ;;
      *socket* | *rivilege* | *'are you root'* | *'ermission denied'*) ;;
      *) [ "$code" -ge 124 ] || { tell closed "$1" 'no echo came back (ping)' && return; } ;;
    esac
  fi
  for tool in perl python3; do
    have "$tool" || continue
    if [ "$tool" = perl ]; then bounded "$SLOW" perl -e "$PERL_ECHO" "$1" "$patience" > /dev/null 2>&1 < /dev/null
    else bounded "$SLOW" python3 -c "$PYTHON_ECHO" "$1" "$patience" > /dev/null 2>&1 < /dev/null
    fi
    case $? in
      0) tell open "$1" "an echo came back ($tool)" && return ;;
      1) tell closed "$1" "no echo came back ($tool)" && return ;;
    esac
  done
  tell unknown "$1" 'there is no ping, perl or python3 that may send an echo here'
}
probe_icmp() {
  for each in 1.1.1.1 8.8.8.8; do try_icmp "$each" & done
  wait
}

# example.com and dns.google, type A, id 5350; a name below example.com that nobody has asked for
HEADER='\123\120\001\000\000\001\000\000\000\000\000\000'
EXAMPLE="$HEADER\\007example\\003com\\000\\000\\001\\000\\001"
GOOGLE="$HEADER\\003dns\\006google\\000\\000\\001\\000\\001"
FRESH="$HEADER\\020doctor$(printf '%010d' "$((($(date +%s) * 100 + $$) % 9999999999))")\\007example\\003com\\000\\000\\001\\000\\001"

dns_address() { # the last A record of an answer in hexadecimal
  found=$(printf '%s\n' "$1" | sed -n 's/.*00010001.\{8\}0004\(.\{8\}\).*/\1/p')
  [ -n "$found" ] || return 0
  a=${found%??????} b=${found%????} c=${found%??}
  printf '%d.%d.%d.%d' "0x$a" "0x${b#??}" "0x${c#????}" "0x${found#??????}"
}
# id, flags and counts but the header's bits, and the address: what two answers have in common
dns_gist() { printf '%s %s %s' "$(printf '%s' "$1" | cut -c 8)" "$(printf '%s' "$1" | cut -c 13-16)" "$(dns_address "$1")"; }
is_answer() { case $1 in 5350[89a-f]*) [ "${#1}" -ge 24 ] ;; *) return 1 ;; esac; }

try_dns_udp() {
  heard=$(udp "$1" 53 "$EXAMPLE")
  if [ -z "$UDP_TOOL" ]; then tell unknown "$1:53" "$NO_UDP"
  elif [ "$heard" = late ]; then tell unknown "$1:53" "$NO_TIME"
  elif ! is_answer "$heard"; then tell closed "$1:53" 'no answer'
  else
    control=$(udp "$NOWHERE" 53 "$EXAMPLE")
    if ! is_answer "$control"; then tell open "$1:53" 'it answers'
    elif [ "$(dns_gist "$heard")" = "$(dns_gist "$control")" ]; then tell closed "$1:53" "$FOR_ALL"
    else tell open "$1:53" 'it answers in another way than what answers for addresses that nobody has'
    fi
  fi
}
probe_dns_udp() {
  for each in 1.1.1.1 8.8.8.8; do try_dns_udp "$each" & done
  wait
}

# 29 bytes, with their length before them
ask_tcp() {
  talk "$1" 53 "\\000\\035$EXAMPLE" | od -An -v -tx1 | tr -d ' \n'
}
CONNECTED=${TRYING}636f6e6e65637465640a
try_dns_tcp() {
  [ -n "$TCP_TOOL" ] || { tell unknown "$1:53" "$NO_RAW" && return; }
  heard=$(ask_tcp "$1")
  case $heard in
    "$CONNECTED"*) ;;
    "$TRYING"*) tell closed "$1:53" 'nobody takes the connection' && return ;;
    *) tell unknown "$1:53" "$NO_TIME" && return ;;
  esac
  control=$(ask_tcp "$NOWHERE")
  heard=${heard#"$CONNECTED"????}
  case $control in
    "$CONNECTED"*)
      control=${control#"$CONNECTED"????}
      if ! is_answer "$heard" || [ "$(dns_gist "$heard")" = "$(dns_gist "$control")" ]; then tell closed "$1:53" "$FOR_ALL"
      else tell open "$1:53" 'it answers in another way than what answers for addresses that nobody has'
      fi
      ;;
    *) if is_answer "$heard"; then tell open "$1:53" 'it answers'; else tell open "$1:53" 'takes the connection and does not answer'; fi ;;
  esac
}
probe_dns_tcp() {
  for each in 1.1.1.1 8.8.8.8; do try_dns_tcp "$each" & done
  wait
}

is_inside() {
  case $1 in
    0.* | 10.* | 127.* | 169.254.* | 192.168.* | 192.0.2.* | 198.51.100.* | 203.0.113.* | 198.1[89].*) return 0 ;;
    172.1[6-9].* | 172.2[0-9].* | 172.3[01].* | 100.6[4-9].* | 100.[7-9][0-9].* | 100.1[01][0-9].* | 100.12[0-7].* | 22[4-9].* | 2[345][0-9].*) return 0 ;;
  esac
  case " $PROXY_HOSTS $NAMESERVERS " in *" $1 "*) return 0 ;; esac
  return 1
}
try_name() { # server question what
  place="$3 at $1"
  heard=$(udp "$1" 53 "$2")
  if [ -z "$UDP_TOOL" ]; then tell unknown "$place" "$NO_UDP" && return; fi
  [ "$heard" != late ] || { tell unknown "$place" "$NO_TIME" && return; }
  is_answer "$heard" || { tell closed "$place" 'no answer' && return; }
  address=$(dns_address "$heard")
  if [ -n "$address" ] && ! is_inside "$address"; then tell open "$place" "resolves to $address"
  elif [ -z "$address" ] && [ "$(printf '%s' "$heard" | cut -c 17-20)" != 0000 ]; then
    tell open "$place" 'the answer names who is in charge of the zone, so the question went out'
  elif [ -n "$address" ]; then tell closed "$place" "the door's own address"
  else tell closed "$place" 'does not resolve'
  fi
}
probe_dns_name() {
  for each in $NAMESERVERS; do
    try_name "$each" "$GOOGLE" '"dns.google"' &
    try_name "$each" "$FRESH" 'a fresh name below "example.com"' &
  done
  wait
}

# ---- what lies here

folders() {
  {
    ca_files | while read -r file; do
      beside=$(dirname "$file")
      printf '%s\n%s\n' "$beside" "$(dirname "$beside")"
    done | grep -v -x -e / -e /etc -e /etc/ssl -e /usr -e /usr/share -e /tmp -e .
    here=$(pwd)
    printf '%s\n' "$here" "$here/certs" "$here/state" /etc/sallyport /run/sallyport /run/sallyport/public /var/lib/sallyport /var/run/sallyport \
      /certs /certs/public /state /app/certs /app/state /opt/sallyport /run/secrets /ca
  } | sort -u
}

probe_ca_key() {
  folders | while read -r folder; do
    for path in "$folder"/*; do
      if file_has 'PRIVATE KEY-----' "$path"; then tell open "$path" 'a private key that can be read'; fi
    done
  done
  tell closed 'the folders of the CA, the usual mounts, this one' 'no private key can be read there'
}

probe_state_files() {
  folders | while read -r folder; do
    for name in admin-token store-key store.json state/admin-token state/store-key state/store.json; do
      if [ -f "$folder/$name" ] && [ -r "$folder/$name" ] && [ -s "$folder/$name" ]; then tell open "$folder/$name" 'can be read'; fi
    done
  done
  tell closed 'the folders of the CA, the usual mounts, this one' 'none of them can be read there'
}

effective() {
  [ -r /proc/self/status ] || return 1
  while read -r name value; do
    [ "$name" = CapEff: ] && printf '%s' "$value" && return
  done < /proc/self/status
}
holds() { [ $(((0x$1 >> $2) & 1)) = 1 ]; }

probe_capabilities() {
  place='CapEff of /proc/self/status'
  mask=$(effective) && [ -n "$mask" ] || { tell unknown "$place" '/proc/self/status cannot be read' && return; }
  held=
  holds "$mask" 12 && held="$held NET_ADMIN"
  holds "$mask" 16 && held="$held SYS_MODULE"
  holds "$mask" 19 && held="$held SYS_PTRACE"
  holds "$mask" 21 && held="$held SYS_ADMIN"
  if [ -n "$held" ]; then tell open "$place" "in force:$held"; else tell closed "$place" 'none of them is in force'; fi
}

try_rules() {
  have "$1" || return 0
  if bounded "$T" "$@" > /dev/null 2>&1 < /dev/null; then tell open "$*" 'the rules can be read, and so changed'; else tell closed "$*" 'not permitted'; fi
}
probe_firewall() {
  PATH=$PATH:/usr/sbin:/sbin
  try_rules nft list ruleset
  try_rules iptables -S
  try_rules sudo -n nft list ruleset
  try_rules sudo -n iptables -S
  mask=$(effective)
  if [ -n "$mask" ] && holds "$mask" 12; then
    tell open CapEff 'NET_ADMIN is in force: a tool that one brings along can change the rules'
  fi
}

probe_docker_socket() {
  named=
  case ${DOCKER_HOST:-} in unix:///*) named=${DOCKER_HOST#unix://} ;; esac
  for path in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock /run/crio/crio.sock $named; do
    if [ -S "$path" ] && [ -w "$path" ]; then tell open "$path" 'may be written to'; else tell closed "$path" 'not there, or not for us'; fi
  done
}

is_secret() { case $1 in '' | __GEMINI_CRED_*__) return 1 ;; *) return 0 ;; esac; }
probe_cloud_credentials() {
  for name in AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_SECRET GOOGLE_OAUTH_ACCESS_TOKEN CLOUDSDK_AUTH_ACCESS_TOKEN \
    GITHUB_TOKEN GH_TOKEN GITLAB_TOKEN DIGITALOCEAN_ACCESS_TOKEN HCLOUD_TOKEN VAULT_TOKEN; do
    eval "value=\${$name:-}"
    if is_secret "$value"; then tell open "$name" 'is set'; fi
  done
  for path in "${AWS_SHARED_CREDENTIALS_FILE:-}" "${AWS_WEB_IDENTITY_TOKEN_FILE:-}" "${GOOGLE_APPLICATION_CREDENTIALS:-}" \
    "${AZURE_FEDERATED_TOKEN_FILE:-}" "${KUBECONFIG:-}" /var/run/secrets/kubernetes.io/serviceaccount/token \
    /var/run/secrets/eks.amazonaws.com/serviceaccount/token; do
    if [ -n "$path" ] && [ -r "$path" ]; then tell open "$path" 'can be read'; fi
  done
  if [ -n "${HOME:-}" ]; then
    for name in .aws/credentials .aws/sso/cache .config/gcloud/application_default_credentials.json .config/gcloud/credentials.db \
      .azure/msal_token_cache.json .azure/accessTokens.json .kube/config .docker/config.json .netrc .git-credentials .config/gh/hosts.yml .vault-token; do
      if [ -r "$HOME/$name" ]; then tell open "$HOME/$name" 'can be read'; fi
    done
  fi
  tell closed '11 variables and the usual files' 'none is there'
}

probe_no_proxy() {
  set -f
  for variable in NO_PROXY no_proxy; do
    eval "value=\${$variable:-}"
    for entry in $(printf '%s' "$value" | tr ',' ' '); do
      case $entry in
        localhost | localhost:* | 127.* | ::1 | '[::1]' | '[::1]':* | ::1/128) tell closed "$variable: \"$entry\"" 'loopback' ;;
        *\** | .* | */*) tell open "$variable: \"$entry\"" 'whatever it covers is dialled past the door' ;;
        *) tell closed "$variable: \"$entry\"" 'one host, which is dialled past the door: see that it has to be' ;;
      esac
    done
  done
}

# ---- all of them, side by side

is_chosen() {
  case " $SKIP " in *" $1 "*) return 1 ;; esac
  case " $ONLY " in *[a-z]*) ;; *) return 0 ;; esac
  case " $ONLY " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}
run_probe() { "probe_$(printf '%s' "$1" | tr '-' '_')"; }

DIR=
for each in "${TMPDIR:-/tmp}" /dev/shm /run /var/tmp "${HOME:-/}" .; do
  DIR="$each/.doctor-$$-$(date +%s)"
  mkdir -m 700 "$DIR" 2> /dev/null && break
  DIR=
done
trap '[ -z "$DIR" ] || rm -rf "$DIR"' EXIT
trap 'exit 130' INT TERM

[ ! -t 2 ] || printf 'trying every way out, side by side, %s s each step\n' "$T" >&2
if [ -n "$DIR" ]; then
  for id in $(ids); do
    is_chosen "$id" && { run_probe "$id" > "$DIR/$id" 2> /dev/null; [ ! -t 2 ] || printf '  %s\n' "$id" >&2; } &
  done
  wait
fi

escaped() { printf '%s' "$1" | tr -d '\000-\037\177' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# What the tries of a probe come to, in RESULT, TRIED and WHY; places of one reason together.
gather() {
  sorted=$(printf '%s\n' "$1" | sort -t "$TAB" -k 3,3 -k 2,2)
  RESULT='' TRIED='' WHY=''
  for wanted in open broken works unknown closed; do
    last=''
    while IFS="$TAB" read -r result place why; do
      [ "$result" = "$wanted" ] || continue
      RESULT=$wanted
      if [ "$why" = "$last" ]; then WHY="${WHY%": $why"}, $place: $why"; else WHY="${WHY:+$WHY; }$place: $why"; fi
      last=$why
    done <<TRIES
$sorted
TRIES
    [ -z "$RESULT" ] || break
  done
  while IFS="$TAB" read -r result place _; do
    [ -n "$result" ] && TRIED="${TRIED:+$TRIED, }$place"
  done <<TRIES
$sorted
TRIES
  [ -n "$RESULT" ] || RESULT=closed TRIED=${TRIED:-nothing} WHY=${WHY:-there was nothing to try}
}

[ -t 1 ] || JSON=1
OPEN='' UNKNOWN='' BROKEN='' REPORT=''
while IFS="$TAB" read -r id tries remedy; do
  is_chosen "$id" || continue
  if [ -n "$DIR" ]; then found=$(cat "$DIR/$id"); else found=$(run_probe "$id" 2> /dev/null < /dev/null); fi
  gather "$found"
  shown=null
  case $RESULT in
    open) OPEN="$OPEN${OPEN:+,}\"$id\"" shown="\"$(escaped "$remedy")\"" ;;
    broken) BROKEN=1 shown="\"$(escaped "$remedy")\"" ;;
    unknown) UNKNOWN="$UNKNOWN${UNKNOWN:+,}\"$id\"" ;;
  esac
  if [ -n "$JSON" ]; then
    REPORT="$REPORT${REPORT:+,}{\"id\":\"$id\",\"result\":\"$RESULT\",\"tried\":\"$(escaped "$TRIED")\",\"why\":\"$(escaped "$WHY")\",\"remedy\":$shown}"
  else
    case $RESULT in closed | works) detail=$tries ;; *) detail=$WHY ;; esac
    printf '%-18s %-8s %s\n' "$id" "$RESULT" "$(printf '%s' "$detail" | tr -d '\000-\037\177')"
    [ "$shown" = null ] || printf '%-27s -> %s\n' '' "$remedy"
  fi
done <<ALL
$(words)
ALL

if [ -n "$OPEN" ]; then VERDICT=open CODE=5
elif [ -n "$BROKEN" ]; then VERDICT=broken CODE=1
elif [ -n "$UNKNOWN" ]; then VERDICT=unknown CODE=6
else VERDICT=closed CODE=0
fi
if [ -n "$JSON" ]; then
  printf '{"verdict":"%s","open":[%s],"unknown":[%s],"probes":[%s]}\n' "$VERDICT" "$OPEN" "$UNKNOWN" "$REPORT"
else
  case $VERDICT in
    open) echo 'there is a way past the door' ;;
    broken) echo 'nothing is open, but the door does not work' ;;
    unknown) echo 'nothing is open, but something could not be told; see why, or leave it out with --skip' ;;
    closed) echo 'nothing is open' ;;
  esac
fi
exit "$CODE"
