set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
root="$1/root" folder="$2"
shift 2
mount -t proc proc "$root/proc"
for place in dev tmp run; do mount -t tmpfs tmpfs "$root/$place"; done
for device in null zero random urandom; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -p "$root$folder" "$root/run/systemd/system"
mount --bind "$folder" "$root$folder"
ip link set lo up
exec chroot "$root" "$@"
