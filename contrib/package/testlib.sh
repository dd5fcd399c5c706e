# What test.sh does with librds, librds-dev, librdsd-preload, librds-fi and python3-rds. It has set root and in_root.

# libraries_deb FOLDER NEWER installs the debs of FOLDER. NEWER has later ones.
libraries_deb() {
	local need
	need=$(dpkg-deb -f "$1"/librds-dev_*.deb Depends)
	[ "$need" = "librds (= $(dpkg-deb -f "$1"/librds_*.deb Version))" ] || die "deb: librds-dev depends on $need"
	cp "$1"/librds_*.deb "$1"/librds-dev_*.deb "$1"/librdsd-preload_*.deb "$1"/python3-rds_*.deb "$root/"
	in_root sh -c 'dpkg -i /python3-rds*.deb' >/dev/null
	rm "$root"/python3-rds*.deb
	in_root sh -c 'dpkg -i /librds*.deb' >/dev/null
	rm "$root"/librds*.deb
	cp "$1"/librds-fi_*.deb "$root/librds-fi.deb" # by itself: it needs libfabric1 of the root, and no librds
	in_root dpkg -i /librds-fi.deb >/dev/null
	rm "$root/librds-fi.deb"
	# Another version's headers do not go with the library.
	cp "$2"/librds-dev_*.deb "$root/"
	in_root sh -c 'dpkg -i /librds-dev_*.deb' >/dev/null 2>&1 && die "deb: librds-dev of another version than librds was installed"
	rm "$root"/librds-dev_*.deb
	cp "$1"/librds-dev_*.deb "$root/"
	in_root sh -c 'dpkg -i /librds-dev_*.deb' >/dev/null
	rm "$root"/librds-dev_*.deb
	libraries_installed deb lib
}

# libraries_rpm FOLDER NEWER does the same with rpms. rpm itself knows that their needs are there,
# but for the program of the library's script.
libraries_rpm() {
	$rpm -i --noscripts "$1"/librds-[0-9]*.rpm "$1"/librds-dev-*.rpm "$1"/librdsd-preload-*.rpm || die "rpm: the libraries were not installed"
	$rpm -U --test "$2"/librds-dev-*.rpm 2>/dev/null && die "rpm: librds-dev of another version than librds would be installed"
	# The root's libfabric is Debian's and looks elsewhere, so fi_info is told where the rpm has the provider.
	$rpm -i --nodeps "$1"/librds-fi-*.rpm || die "rpm: the provider of libfabric was not installed"
	in_root ldconfig /usr/lib64
	libraries_installed rpm lib64
}

# libraries_installed FORMAT LIB checks the files, and builds the programs by pkg-config. LIB is
# where the libraries are.
libraries_installed() {
	local f
	for f in $2/librds.so.0 $2/librds.so $2/librds.a $2/pkgconfig/rds.pc include/rds/rds.h lib/rdsd/librdsd-preload.so; do
		[ -s "$root/usr/$f" ] || die "$1: no /usr/$f"
	done
	for f in man3/rds_send.3.gz man7/librds.7.gz man7/fi_rdsd.7.gz man1/rdsctl-run.1.gz; do
		gzip -dc "$root/usr/share/man/$f" | grep -q '^\.TH' || die "$1: /usr/share/man/$f is no manual"
	done
	rm -rf "$root/src"
	mkdir "$root/src"
	cp preload/tests/ready.c preload/tests/check.h preload/tests/busy.c "$root/src"
	in_root env PKG_CONFIG_PATH=/usr/$2/pkgconfig sh -ec '
		for f in /usr/share/doc/librds-dev/examples/*.c; do
			cc -Wall -Wextra -Werror -D_GNU_SOURCE -o "/src/$(basename "$f" .c)" "$f" $(pkg-config --cflags --libs rds) -pthread
		done
		cc $(pkg-config --cflags rds) -D_GNU_SOURCE -o /src/static-echo /usr/share/doc/librds-dev/examples/echo.c $(pkg-config --variable=libdir rds)/librds.a -pthread
		for f in ready busy; do cc -D_GNU_SOURCE -pthread -o "/src/$f" "/src/$f.c"; done' || die "$1: the C programs do not build"
	say "$1: librds, librds-dev and librdsd-preload installed; C programs build by pkg-config"
}

# libraries_run FORMAT runs the programs with the daemon at 127.77.0.1: those of librds, and those
# that know the kernel's AF_RDS alone.
libraries_run() {
	local server got p
	for p in echo static-echo; do
		chroot "$root" /src/$p -bind 127.77.0.1:4000 >/dev/null &
		server=$!
		got=$(for _ in $(seq 100); do in_root "/src/$p" -bind 127.77.0.1:0 -to 127.77.0.1:4000 hello 2>/dev/null && break; sleep 0.1; done)
		kill $server
		wait $server 2>/dev/null || true
		[ "$got" = hello ] || die "$1: $p answered \"$got\""
	done
	if [ "$1" = deb ]; then
		in_root python3 -c 'import rds
with rds.Client() as c, c.bind("127.77.0.1:0") as s:
    s.send_to(b"hello", s.local)
    assert s.recv().payload == b"hello"' || die "deb: package rds for Python"
	fi
	in_root rdsctl run -- /src/ready 127.77.0.1 || die "$1: AF_RDS sockets under rdsctl run"
	[ "$(in_root rdsctl run -- /src/busy 127.77.0.1)" = 32000 ] || die "$1: AF_RDS messages under rdsctl run"
	in_root /src/busy 127.77.0.1 2>/dev/null && die "$1: AF_RDS works without rdsctl run"
	local path=()
	[ "$1" = deb ] || path=(env FI_PROVIDER_PATH=/usr/lib64/libfabric)
	in_root "${path[@]}" fi_info -p rdsd | grep -q 'domain: 127.77.0.1' || die "$1: libfabric does not find the provider rdsd with the daemon's address"
	say "$1: programs of librds, libfabric's provider rdsd, and AF_RDS programs under rdsctl run"
}

# libraries_gone FORMAT removes the libraries.
libraries_gone() {
	if [ "$1" = deb ]; then in_root dpkg -P python3-rds librdsd-preload librds-fi librds-dev librds >/dev/null; else $rpm -e --noscripts librdsd-preload librds-fi librds-dev librds; fi
	in_root ldconfig
	rm -rf "$root/src"
	in_root find / -xdev \( -name 'librds*' -o -name 'fi_rdsd*' -o -name 'rds.pc' -o -path '/usr/include/rds*' -o -name 'rds_*.3.gz' \) -not -path '/proc/*' -not -path '/var/*' | grep . && die "$1: these files of the libraries stayed"
	say "$1: libraries removed; nothing stayed"
}
