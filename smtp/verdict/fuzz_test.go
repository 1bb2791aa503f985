package verdict

import (
	"fmt"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Any attempt gives some verdict that keeps the contract, from whatever host.
func FuzzJudge(f *testing.F) {
	f.Add(uint8(smtp.StageRcpt), 550, uint16(5), uint16(1), uint16(1), "user unknown", "mx.example.com", "john@example.com")
	f.Add(uint8(smtp.StageRcpt), 451, uint16(4), uint16(7), uint16(1), "greylisted for 300 seconds\xff", "", "ä@")
	f.Add(uint8(smtp.StageRcpt), 250, uint16(0), uint16(0), uint16(0), "ok", "mta5.am0.yahoodns.net", "a@b")
	f.Add(uint8(smtp.StageRcpt), 550, uint16(5), uint16(2), uint16(1), "rate that prevents", "aspmx.l.google.com", "a@b")
	f.Add(uint8(200), -1, uint16(9), uint16(65535), uint16(0), "00:00:00 1 hour and 1 hour", "..", "@@")
	f.Fuzz(func(t *testing.T, stage uint8, code int, class, subject, detail uint16, text, host, address string) {
		local, domain, _ := strings.Cut(address, "@")
		a := evidence.Note(evidence.Raw{
			Stage: smtp.Stage(stage), Host: host, Hello: domain, Source: local,
			Address: smtp.Address{Local: local, Domain: domain},
			Reply: smtp.Reply{
				Code: code, Enhanced: smtp.EnhancedCode{class, subject, detail}, Lines: strings.Split(text, "\n"),
			},
		})
		checkContract(t, fmt.Sprintf("%+v", a), a)
		v := Builtin().Judge(a)
		effort.ErrorIf(t, v.Wait < 0 || v.Wait > waitMax || v != Builtin().Judge(a), "%+v", v)
	})
}

// Any bytes are refused, or give rules that judge.
func FuzzRuleFile(f *testing.F) {
	f.Add([]byte(ownHead + ownRule))
	f.Add([]byte("title = \"x\"\n" + with(`words = ["(a|b) (c|d*)", "ж"]`, `enhanced = ["x.1.2-9", "none"]`)))
	f.Add([]byte("title = 1\n[[rule]]\nid = [[1]]\n[rule]\nrule = [{id = \"x\"}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		own, found := readFile("verdict.toml", data, true)
		if len(found) > 0 || len(own.rules) > rulesMax {
			return
		}
		phrases := 0
		for _, r := range own.rules {
			phrases += len(r.phrases)
		}
		if phrases > 1000 {
			t.Skip("the machine takes too long for a fuzz test")
		}
		s := compile([]*ruleFile{own})
		if s.check(true) != nil {
			return
		}
		for _, r := range s.rules { // what has no faults decides about its samples
			a := sample(t, r.doc.Match[0])
			if len(r.scope) > 0 {
				a.Host = r.scope[0]
			}
			v := s.Judge(a)
			effort.ErrorIf(t, v.Rule != r.doc.ID && !strings.Contains(r.doc.Match[0], "@"), "%s: %+v", r.doc.ID, v)
		}
	})
}
