package verdict

import (
	"slices"
	"strings"
	"sync"

	"rollcall/smtp/evidence"
)

// Names of filter products contain words such as "spam" and "firewall" that say nothing about us: "User unknown
// (Barracuda Spam Firewall)" is a missing mailbox. So a part of a text that only names a product is removed for the
// generic rules, and the rest decides. "Rejected by Barracuda Spam Firewall" says more, and stays.

// vendors are names of products and of their makers.
var vendors = wordSet(`amavis amavisd antispameurope appriver astaro avast avg axigen barracuda bitdefender brightmail
	cisco clamav cloudmark communigate courier cyren commtouch domino drweb edgewave eset exchange
	exchangedefender exim fireeye forcepoint forefront fortimail fortinet gfi groupwise halon haraka
	hexamail hmailserver hornetsecurity icewarp interscan ironport kaspersky kerio libraesva magicmail
	mailassure mailchannels mailcleaner mailenable mailessentials mailmarshal mailprotector mailscanner
	mailsecurity mcafee mdaemon merak messagelabs mimecast modusgate modusmail mxguarddog mxlogic norton
	panda postfix postini proofpoint proxmox puremessage qmail reflexion retarus rspamd securence
	securityplus sendio sendmail smartermail smoothwall sonicwall sophos spamassassin spambrella
	spamexperts spamhero spamina spamtitan symantec titanhq trellix trendmicro trustwave untangle vade
	vaderetro vircom watchguard websense xeams zerospam zimbra zix`)

// devices are kinds of such products, the last word of a name without a known maker.
var devices = wordSet(`antispam antivirus appliance firewall gateway security suite`)

// things are further words in product names and in harmless phrases about products.
var things = wordSet(`a advanced and anti by cloud connect content corp defence defender defense e edition email engine
	enterprise essentials filter filtering for gmbh inc is ltd mail malware messaging micro network networks of on
	plus powered pro protected protection provided proxy running runs scanned secure secured server service
	services smtp software solution solutions spam system the this threat trend uses using utm version virus with`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(list) {
		set[word] = true
	}
	return set
}

// productNames finds words of product names.
var productNames = sync.OnceValue(func() machine {
	var phrases []phrase
	for _, set := range []map[string]bool{vendors, devices} {
		for word := range set {
			phrases = append(phrases, phrase{text: word})
		}
	}
	return newMachine(phrases)
})

// withoutProducts removes from a text the parts between signs, and the words at its end, that only name a product.
// If nothing would remain, the text stays.
func (s *Rules) withoutProducts(text string) string {
	var named found
	if s.products.scan(text, &named); !named.has(0) {
		return text
	}
	var kept []string
	for at := 0; at < len(text); {
		end, opened := partEnd(text, at), at > 0 && (text[at-1] == '(' || text[at-1] == '[')
		part := text[at:end]
		if words := strings.FieldsFunc(part, isBetween); s.isProduct(words, opened) {
			part = " "
		} else if n := productTail(words); n > 0 && end == len(text) {
			part = strings.Join(words[:len(words)-n], " ")
		}
		kept = append(kept, part)
		if end < len(text) {
			kept = append(kept, text[end:end+1])
		}
		at = end + 1
	}
	if plain := strings.Join(kept, ""); strings.IndexFunc(plain, func(r rune) bool { return !isBetween(r) }) >= 0 {
		return plain
	}
	return text
}

// partEnd returns the end of the part of a text that begins at from: before a punctuation mark.
func partEnd(text string, from int) int {
	for i := from; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte("()[]{};,!|", c) >= 0,
			(c == '.' || c == ':') && (i+1 == len(text) || text[i+1] == ' '),
			c == '-' && i > from && text[i-1] == ' ' && i+1 < len(text) && text[i+1] == ' ':
			return i
		}
	}
	return len(text)
}

func isBetween(r rune) bool { return r < 0x80 && !evidence.IsWordByte(byte(r)) }

// isProduct reports whether words only name a product: one word is a maker or, between brackets, an unknown name
// stands before a kind of device.
func (s *Rules) isProduct(words []string, bracketed bool) bool {
	if len(words) == 0 {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(words), isOfProduct)
	if len(others) == 0 && slices.ContainsFunc(words, func(word string) bool { return vendors[word] }) {
		return true
	}
	var refuses found
	s.doubts.words.scan(strings.Join(others, " "), &refuses)
	return bracketed && devices[words[len(words)-1]] && len(others) == 1 && !refuses.has(0)
}

// behind are words before a product, besides things, that say what it did or where it stands.
var behind = []string{"at", "from", "in", "through", "via"}

// productTail returns how many words at the end name a product, from its maker on, if no word such as "by" precedes
// them.
func productTail(words []string) int {
	from := len(words)
	for from > 0 && isOfProduct(words[from-1]) {
		from--
	}
	maker := slices.IndexFunc(words[from:], func(word string) bool { return vendors[word] })
	if maker < 0 || from+maker+1 == len(words) {
		return 0
	}
	if maker += from; maker >= 2 && words[maker-2] == "trend" && words[maker-1] == "micro" {
		maker -= 2
	}
	if maker == 0 || isOfProduct(words[maker-1]) || slices.Contains(behind, words[maker-1]) {
		return 0
	}
	return len(words) - maker
}

// isOfProduct reports whether a word may be part of a product's name or version.
func isOfProduct(word string) bool {
	return vendors[word] || devices[word] || things[word] || strings.Trim(word, "v0123456789") == ""
}
