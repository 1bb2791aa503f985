package smtp

import "fmt"

// Outcome is the final word on one address. The zero value promises nothing.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Outcome uint8

// The outcomes of the customer's contract.
const (
	Undecided Outcome = iota // no final answer yet; the ledger refuses to store it
	Valid                    // the receiver accepted this very address
	Invalid                  // the receiver refused this very address, for good, or its domain takes no mail
	CatchAll                 // accepted, but so is everything else at this domain
	Unknown                  // we could not find out; free
	Error                    // a fault tied to this address; charged, so the last resort
)

var outcomeNames = [...]string{"undecided", "valid", "invalid", "catch_all", "unknown", "error"}

// Outcomes lists the five final outcomes in the order in which people are shown them.
var Outcomes = [...]Outcome{Valid, Invalid, CatchAll, Unknown, Error}

// String returns the contract's word, such as "catch_all".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Final reports whether o may be stored: it is one of the five.
func (o Outcome) Final() bool { return o > Undecided && o <= Error }

// Free reports whether o costs no credit: unknown, and only that.
func (o Outcome) Free() bool { return o == Unknown }

// Reason is why an outcome is what it is: a stable token for programs and a
// sentence for people. Both are ours; nothing a receiver wrote is ever part of
// them, so a hostile receiver cannot reach a customer's spreadsheet.
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

// Known reports whether r is on the list and may be stored.
func (r Reason) Known() bool { return r > ReasonNone && int(r) < len(reasonTexts) }
