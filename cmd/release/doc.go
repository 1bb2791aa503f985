// Command release builds the files of a release: for each platform an archive with the binary, Debian packages, an
// OCI image archive, and the checksums of all.
//
//	go run ./cmd/release --out dist
//
// Run it at the root of a clone. The same commit, built by the same Go, gives the same bytes anywhere: paths are left
// out, and every time is the commit's. `make release` calls it.
package main
