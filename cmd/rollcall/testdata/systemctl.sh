user="setpriv --reuid=rollcall --regid=rollcall --clear-groups"
lines() { sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$1.service" | sed 's/%%/%/g'; }
serve() {
	cd /var/lib/rollcall
	$user sh -c "exec $(lines rollcall)" >> /var/lib/rollcall/log 2>&1 &
	echo $! > /tmp/pid
	curl --retry 60 --retry-all-errors --silent --fail --output /dev/null http://127.0.0.1:8081/readyz
}
case "$1 $2" in
"daemon-reload ") ;;
"enable --now") serve ;;
"try-restart rollcall.service") # by the package, at an upgrade
	kill "$(cat /tmp/pid)"
	tail --pid="$(cat /tmp/pid)" -f /dev/null
	grep --quiet draining /var/lib/rollcall/log || exit 1
	serve
	echo "restarted, as $(stat -c %U "/proc/$(cat /tmp/pid)")" ;;
"is-active rollcall") curl --silent --fail --output /dev/null http://127.0.0.1:8081/readyz && echo active ;;
"start rollcall-backup") sleep 1 # a copy's name has the second
	lines rollcall-backup | $user sh -eu ;;
*) exit 1 ;;
esac
