package smtplab

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"rollcall/smtp"
)

// hostileFamily is the family of the behaviours that a client must survive, in clear.
const hostileFamily = "hostile"

// shownAt is the stage at which a hostile personality is seen to be one.
func (p *Personality) shownAt() smtp.Stage { return cmp.Or(p.Shows, p.BreakAt) }

// afterSTARTTLS returns the second personality of a hostile one, with "tls" behind its name. It refuses MAIL before
// STARTTLS and behaves well until after the handshake; a behaviour at the greeting then comes right after it. If the
// behaviour is about STARTTLS itself, the second only requires TLS.
func afterSTARTTLS(clear Personality) Personality {
	p := clear
	if clear.shownAt() == smtp.StageTLS {
		p.NeedsTLS = true
		if p.TLS == TLSRefused || p.TLS == TLSNone || p.BreakAt == smtp.StageTLS {
			p.Fixed = smtp.Unknown
		}
	} else {
		p = Personality{TLS: TLSSelfSigned, NeedsTLS: true, AfterTLS: &clear, Shows: clear.Shows,
			Fixed: clear.Fixed, Also: clear.Also, Reasons: clear.Reasons, Hard: clear.Hard,
			NoEnhanced: clear.NoEnhanced, UTF8: clear.UTF8}
	}
	p.Name, p.About, p.Family = clear.Name+"tls", clear.About+", after STARTTLS", hostileFamily+"tls"
	return p
}

// longTexts puts the texts that are too long for a line into those of personalities.txt.
var longTexts = sync.OnceValue(func() *strings.Replacer {
	extensions := make([]string, 10_000)
	for i := range extensions {
		extensions[i] = fmt.Sprintf("X-FEATURE-%d", i)
	}
	return strings.NewReplacer("{extensions}", strings.Join(extensions, "\n"), "{long}", strings.Repeat("LONG", 1<<10),
		"{refusal}", longRefusal(), "{nonsense}", nonsense())
})

// longRefusal has 60 lines of a KiB each.
func longRefusal() string {
	const lines, bytes = 60, 1 << 10
	line := "5.1.1 User unknown "
	line += strings.Repeat("x", bytes-len("550-")-len(line)-len("\r\n"))
	return strings.Repeat("550-"+line+"\n", lines-1) + "550 " + line
}

// nonsense is 4 KiB of fixed, meaningless text.
var nonsense = sync.OnceValue(func() string {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, 4<<10)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return string(out)
})
