package smtp

import (
	"fmt"
	"slices"
)

// Outcome is the final result for one address. The zero value is no result.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Outcome uint8

// The outcomes of the API.
const (
	Undecided Outcome = iota // no final answer yet; the ledger refuses to store it
	Valid                    // the receiver accepted this very address
	Invalid                  // the receiver refused this very address, for good, or its domain takes no mail
	CatchAll                 // accepted, but the domain accepts every address
	Unknown                  // we could not find out; free
	Error                    // a fault tied to this address; charged, so used only as the last resort
)

var outcomeNames = [...]string{"undecided", "valid", "invalid", "catch_all", "unknown", "error"}

// Outcomes lists the five final outcomes in the order of display.
var Outcomes = [...]Outcome{Valid, Invalid, CatchAll, Unknown, Error}

// String returns the API's word, such as "catch_all".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Final reports whether o is one of the five outcomes that may be stored.
func (o Outcome) Final() bool { return o > Undecided && o <= Error }

// Free reports whether o costs no credit. Only unknown is free.
func (o Outcome) Free() bool { return o == Unknown }

// Reason explains an outcome: a stable token for programs and a sentence for people. Both are ours and never contain
// a receiver's text, so a hostile receiver cannot write into a customer's spreadsheet.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Reason uint8

// The closed list of reasons.
const (
	ReasonNone Reason = iota
	MailboxExists
	AcceptAll
	NoRcptAnswer
	MailboxNotFound
	MailboxDisabled
	MailboxFull
	MailboxRestricted
	MailboxBusy
	DomainNotFound
	NoMailService
	DomainNotHosted
	Syntax
	Greylisted
	ReceiverBusy
	ReceiverRateLimited
	SourceBlocked
	SourceIdentity
	TLSFailed
	TimedOut
	ConnectionFailed
	Protocol
	EAIUnsupported
	Policy
	HarvestGuard
	Internal
	DNSFailed
	BackupOnly
	NotAccepted
	Intercepted
	NotSimulated
)

var reasonTexts = [...]struct{ token, sentence string }{
	ReasonNone:          {"none", ""},
	MailboxExists:       {"mailbox_exists", "The receiver accepts mail for this mailbox."},
	AcceptAll:           {"accept_all", "The receiver accepts every address at this domain."},
	NoRcptAnswer:        {"no_rcpt_answer", "The receiver does not say before delivery whether a mailbox exists."},
	MailboxNotFound:     {"mailbox_not_found", "The receiver says that this mailbox does not exist."},
	MailboxDisabled:     {"mailbox_disabled", "The receiver says that this mailbox is disabled."},
	MailboxFull:         {"mailbox_full", "The receiver says that this mailbox is full."},
	MailboxRestricted:   {"mailbox_restricted", "The mailbox exists but takes mail from certain senders only."},
	MailboxBusy:         {"mailbox_busy", "The mailbox exists but receives too much mail at the moment."},
	DomainNotFound:      {"domain_not_found", "The domain of this address does not exist."},
	NoMailService:       {"no_mail_service", "The domain of this address takes no mail."},
	DomainNotHosted:     {"domain_not_hosted", "The mail servers of this domain say that they do not serve it."},
	Syntax:              {"syntax", "The receiver says that this is not an address."},
	Greylisted:          {"greylisted", "The receiver asked us to come back later until our time was up."},
	ReceiverBusy:        {"receiver_busy", "The receiver was too busy to answer."},
	ReceiverRateLimited: {"receiver_rate_limited", "The receiver limits how much we may ask."},
	SourceBlocked:       {"source_blocked", "The receiver refuses to talk to us, whatever the address."},
	SourceIdentity:      {"source_identity", "The receiver does not accept how we introduce ourselves."},
	TLSFailed:           {"tls_failed", "No encrypted session could be made with the receiver."},
	TimedOut:            {"timeout", "The receiver did not answer in time."},
	ConnectionFailed:    {"connection_failed", "No connection to the receiver could be made."},
	Protocol:            {"protocol", "The receiver did not keep to the mail protocol."},
	EAIUnsupported:      {"eai_unsupported", "The receiver does not take internationalized addresses."},
	Policy:              {"policy", "The receiver's policy does not let us find out."},
	HarvestGuard:        {"harvest_guard", "The receiver stopped answering because too many addresses were asked."},
	Internal:            {"internal", "A fault on our side."},
	DNSFailed:           {"dns_failed", "The domain's name servers did not answer."},
	BackupOnly:          {"backup_only", "Only a backup server answered, and it accepts every address."},
	NotAccepted:         {"not_accepted", "The receiver says for now, and never for good, that this mailbox does not exist."},
	Intercepted:         {"intercepted", "Somebody else answers in place of the domain's mail servers."},
	NotSimulated:        {"not_simulated", "The receivers of this service are simulated and know only .test."},
}

// String returns the token, such as "mailbox_not_found".
func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r].token
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Message is what the results file shows: the token, a space, the sentence.
func (r Reason) Message() string {
	if int(r) < len(reasonTexts) && r != ReasonNone {
		return reasonTexts[r].token + " " + reasonTexts[r].sentence
	}
	return Internal.Message()
}

// Reasons returns all of them.
func Reasons() (all []Reason) {
	for r := ReasonNone + 1; r.Known(); r++ {
		all = append(all, r)
	}
	return all
}

// Named finds the one with a word; false, and the zero value: there is none.
func Named[T fmt.Stringer](all []T, word string) (one T, found bool) {
	i := slices.IndexFunc(all, func(one T) bool { return one.String() == word })
	if i < 0 {
		return one, false
	}
	return all[i], true
}

// Known reports whether r is on the list and may be stored.
func (r Reason) Known() bool { return r > ReasonNone && int(r) < len(reasonTexts) }

// Blame is who caused a reply.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Blame uint8

// The values of Blame.
const (
	BlameNobody Blame = iota
	BlameAddress
	BlameDomain
	BlameReceiver
	BlameSource // us: our address, name or behaviour
)

var blameNames = [...]string{"nobody", "address", "domain", "receiver", "source"}

// Blames lists all of them in the order of display.
var Blames = [...]Blame{BlameAddress, BlameDomain, BlameReceiver, BlameSource, BlameNobody}

// String returns the word for records and logs, such as "source".
func (b Blame) String() string {
	if b.Known() {
		return blameNames[b]
	}
	return fmt.Sprintf("blame(%d)", uint8(b))
}

// Known reports whether b is one of these.
func (b Blame) Known() bool { return int(b) < len(blameNames) }
