package secure

import "errors"

var (
	// ErrName is in every error about a name that cannot be a member's.
	ErrName = errors.New("not a node name")
	// ErrCertificate is in every error about a certificate or key that cannot be used.
	ErrCertificate = errors.New("certificate cannot be used")
	// ErrKeyReadable is in the error about a private key that others may read.
	ErrKeyReadable = errors.New("private key can be read by others")
	// ErrUnknownAddress says that no member is known at the dialled address.
	ErrUnknownAddress = errors.New("no member has this address")
	// ErrOtherName says that a peer's certificate has another name than the member's.
	ErrOtherName = errors.New("certificate of another name")
	// ErrNoIdentity says that a node without certificates wants to be reached from
	// other machines.
	ErrNoIdentity = errors.New("actor traffic off loopback needs tls_ca_file, tls_cert_file and tls_key_file")
)
