package ledger

import "errors"

// The refusals of a Book. When several apply, the first of this list is given.
var (
	ErrNoSuchWorkspace    = errors.New("ledger: no such workspace")
	ErrNoSuchKey          = errors.New("ledger: no such key")
	ErrNoSuchVerification = errors.New("ledger: no such verification")
	ErrResultsExpired     = errors.New("ledger: the results are past their retention")
	ErrIdentityReused     = errors.New("ledger: the idempotency key was used with another length")
	ErrFileTooLarge       = errors.New("ledger: the file is larger than allowed")
	ErrTooManyOpen        = errors.New("ledger: too many verifications are open")
	ErrTooManyBytes       = errors.New("ledger: the workspace has too many bytes stored")
	ErrTooManyUnpaid      = errors.New("ledger: too many verifications of a day never held a credit")
	ErrNoRoom             = errors.New("ledger: the disk of the ledger is nearly full")
	ErrStaleEpoch         = errors.New("ledger: the lease belongs to another epoch")
	ErrFenced             = errors.New("ledger: a newer writer has this upload")
	ErrUploadClosed       = errors.New("ledger: the upload is over")
	ErrGap                = errors.New("ledger: the chunk does not start at the durable end")
	ErrNoSuchNode         = errors.New("ledger: no such node")
	ErrNodeAlive          = errors.New("ledger: the node was seen lately")
	ErrOtherCluster       = errors.New("ledger: nodes of a cluster with another name use this ledger")
	ErrTooManyOverrides   = errors.New("ledger: too many overrides hold: clear some that are not needed any more")
	ErrClock              = errors.New("ledger: its clock is not believed, so nothing is erased or expired (docs/runbooks/clock-wrong.md)")
	ErrNothingFound       = errors.New("ledger: an audit finds nothing about it that is not set right already")
	ErrUncorrectable      = errors.New("ledger: a correction cannot set this right")
	ErrIllegal            = errors.New("ledger: the step is not allowed in this status")
)
