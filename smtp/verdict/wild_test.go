package verdict

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// draw returns every sentence that a form such as "(a|b) c" stands for.
func draw(t *testing.T, form string) []string {
	t.Helper()
	return effort.Must(expand(form))(t)
}

// judgeAt judges a reply to RCPT of a host.
func judgeAt(t *testing.T, reply, host string) Verdict {
	t.Helper()
	a, err := Sample("rcpt | "+reply, host)
	effort.OK(t, err, reply)
	return Builtin().Judge(a)
}

// someHost is one about which there is no rule.
const someHost = "mx.example.com"

// endsIt wants a reply to end an address by itself: it says in plain words that there is no mailbox for it.
func endsIt(t *testing.T, reply string) {
	t.Helper()
	v := judgeAt(t, reply, someHost)
	effort.ErrorIf(t, v.Outcome != smtp.Invalid || v.Bare, "%s: %s by %s", reply, v.golden(), v.Rule)
}

// endsNothing wants a reply to end no address without a witness.
func endsNothing(t *testing.T, reply string) {
	t.Helper()
	v := judgeAt(t, reply, someHost)
	effort.ErrorIf(t, v.Outcome == smtp.Invalid && !v.Bare, "%s: %s by %s", reply, v.golden(), v.Rule)
}

// sizeOnly wants a reply to be no word about a mailbox.
func sizeOnly(t *testing.T, reply, host string) {
	t.Helper()
	v := judgeAt(t, reply, host)
	effort.ErrorIf(t, v.Outcome != smtp.Undecided || v.Reason == smtp.MailboxFull, "%s at %s: %s by %s", reply, host,
		v.golden(), v.Rule)
}

// eachCode calls want with each text under each code.
func eachCode(t *testing.T, codes, texts []string, want func(t *testing.T, reply string)) {
	t.Helper()
	for _, text := range texts {
		for _, code := range codes {
			want(t, code+" "+text)
		}
	}
}

// The size of a message says nothing about a mailbox, under any code at any host.
func TestSizeIsNotFullness(t *testing.T) {
	t.Parallel()
	hosts, try := providerHosts(t), effort.EveryNth(5)
	for _, code := range []string{"552 5.3.4 ", "552 5.2.3 ", "550 5.3.4 ", "554 5.2.3 ", "552 ", "550 5.0.0 ",
		"552 5.2.2 ", "452 4.3.4 "} {
		for _, text := range append(
			draw(t, "(Message|Your mail|E-mail|The attachment) (size exceeds|length exceeds|exceeds|exceeded|is larger than) (the|its|our) (limit|maximum size|quota)"),
			draw(t, "(Message|Mail|E-Mail|Letter|File) (|is )too (big|large|long)(| for this mailbox)")...) {
			for host := range hosts {
				if !try() {
					continue
				}
				sizeOnly(t, code+text, host)
			}
		}
	}
	eachCode(t, []string{"552 5.3.4", "550 5.2.3"}, []string{"mailbox full", "over the quota", "Maximum size exceeded"},
		func(t *testing.T, reply string) { sizeOnly(t, reply, someHost) })
}

// "Too many messages" in a mailbox is about the mailbox; "too many" from us or in a session is a limit to us.
func TestManyMessagesInAMailboxAreNotOurPace(t *testing.T) {
	full := slices.Concat(
		draw(t, "(|There are |Sorry, )too (many messages|many mails|much mail) in (this|the|user's|recipient's) (mailbox|inbox|account)"),
		draw(t, "(|User's |This )(mailbox|account|inbox|folder) (has|holds|contains) too (many messages|many emails|much mail)"),
		draw(t, "Too many (messages|mails) (stored|kept|held) for (this|that) (mailbox|user)"))
	ours := draw(t, "(|You have sent )too many (messages|mails|emails) (from your host|in this session|per connection|in the last hour|sent)")
	codes := []string{"552", "552 5.2.2", "550", "550 5.1.1", "554 5.0.0", "452", "450 4.2.2", "421 4.2.2"}
	eachCode(t, codes, full, func(t *testing.T, reply string) {
		v := judgeAt(t, reply, someHost)
		effort.ErrorIf(t, v.Reason != smtp.MailboxFull || v.Blame != smtp.BlameAddress ||
			reply[0] == '5' && (v.Outcome != smtp.Invalid || v.Bare), "%s: %s by %s", reply, v.golden(), v.Rule)
	})
	eachCode(t, codes, ours, func(t *testing.T, reply string) {
		v := judgeAt(t, reply, someHost)
		effort.ErrorIf(t, v.Blame == smtp.BlameAddress, "%s: %s by %s", reply, v.golden(), v.Rule)
	})
}

// A file, a table or a login that is missing or locked is no mailbox, nor is what is only said under a condition.
func TestThingsBesideAMailboxAreNoMailbox(t *testing.T) {
	const missing = " (not found|does not exist|is unknown)"
	eachCode(t, []string{"550", "554", "550 5.0.0"}, slices.Concat(
		draw(t, "(|The |Sorry, )(alias|user|mailbox) (file|map|index)"+missing),
		draw(t, "(|The )(ticket|newsletter|certificate|transaction)"+missing),
		draw(t, "(|The )authenticated (user|account)"+missing),
		draw(t, "(If|In case) the (user|mailbox|account) (does not exist|is unknown|is disabled), (contact|ask) us")),
		func(t *testing.T, reply string) {
			v := judgeAt(t, reply, someHost)
			effort.ErrorIf(t, v.Outcome == smtp.Invalid, "%s: %s by %s", reply, v.golden(), v.Rule)
		})
}

// What refuses senders is no word about a mailbox that was closed, or whose directory lacks a name.
func TestWordsOfRefusalsInSentencesAboutMailboxes(t *testing.T) {
	ours := strings.NewReplacer("Mailbox", "Your IP", "Account", "Your host", "User", "Sender", "user", "sender",
		"recipient", "IP")
	texts := append(
		draw(t, "(Mailbox|Account|User) (is |was |has been |)(blocked|closed|suspended) (for inactivity|due to inactivity|because of non-use|by administrator)"),
		draw(t, "(|The )(user|recipient) (|is )not listed in (the|our) (directory|company address book|user list)")...)
	eachCode(t, []string{"550", "550 5.1.1", "550 5.2.1", "553"}, texts, endsIt)
	for _, text := range texts {
		endsNothing(t, "550 "+ours.Replace(text))
	}
}

// spokenRefusals are plain refusals in the words of directories and in many languages, with the words for us or our
// sender that make each of them another sentence.
var spokenRefusals = []struct {
	reason smtp.Reason
	forms  []string // noun, and what is said of it; "#" is the noun
	nouns  string
	others string // what is no mailbox
}{
	{smtp.MailboxNotFound, []string{"# cannot be located", "We have no record of that #", "# no longer on staff",
		"Sorry, # is not on file", "Unable to find #"}, "recipient|employee|user", "sender|sending host"},
	{smtp.MailboxDisabled, []string{"# was decommissioned", "That # has been shut down",
		"Dormant #"}, "mailbox|account|inbox", "gateway|listener"},
	{smtp.MailboxFull, []string{"# has used up its quota", "no room left in #",
		"No space left for this #"}, "mailbox|account|user", "host|queue"},
	{smtp.MailboxNotFound, []string{"您要找的#不存在", "#未知", "系统中找不到该#", "对不起，#无效"}, "用户|收件人|邮箱|帳號", "发件人|域名"},
	{smtp.MailboxFull, []string{"该#已满", "#空间不足", "#超出配额"}, "用户|收件人邮箱|信箱", "发件人邮箱"},
	{smtp.MailboxNotFound, []string{"指定された#は存在しません", "#が見つかりません", "#不明"}, "ユーザー|宛先|メールボックス", "送信者|ドメイン"},
	{smtp.MailboxNotFound, []string{"해당 #를 찾을 수 없습니다", "존재하지 않는 #입니다", "#가 없습니다"}, "사용자|수신자|계정", "발신자|도메인"},
	{smtp.MailboxNotFound, []string{"# ne obstaja", "Ta # ni bil najden",
		"Neznan #"}, "uporabnik|predal|naslovnik", "pošiljatelj|strežnik"},
	{smtp.MailboxNotFound, []string{"# sconosciuto", "L'# richiesto non esiste",
		"# non è presente"}, "utente|indirizzo", "mittente|dominio"},
	{smtp.MailboxDisabled, []string{"# suspendida", "La # fue dada de baja",
		"# se encuentra bloqueada"}, "cuenta|casilla", "red|conexión del remitente"},
	{smtp.MailboxNotFound, []string{"# לא קיים", "# אינו מוכר במערכת", "לא נמצא #"}, "המשתמש|הנמען", "השולח"},
	{smtp.MailboxNotFound, []string{"# غير موجود", "# غير معروف", "لا يوجد #"}, "المستخدم|المستلم", "المرسل|النطاق"},
	{smtp.MailboxNotFound, []string{"ไม่พบ#", "#ไม่มีอยู่ในระบบ", "ไม่รู้จัก#นี้"}, "ผู้ใช้|ผู้รับ|กล่องจดหมาย",
		"ผู้ส่ง|โดเมน"},
	{smtp.MailboxNotFound, []string{"Tundmatu #", "Sellist # ei leitud", "# puudub"}, "kasutaja|postkast",
		"saatja|domeen"},
	{smtp.MailboxNotFound, []string{"Es konnte leider kein # mit diesem Namen gefunden werden", "Hier gibt es keinen #"},
		"Empfänger|Benutzer", "Absender|Mailserver"},
	{smtp.MailboxNotFound, []string{"Не удалось найти # с таким именем", "# у нас не зарегистрирован"},
		"пользователя|получателя", "отправителя|домена"},
	{smtp.MailboxNotFound, []string{"Impossibile trovare un # con questo nome", "Qui non c'è nessun #"},
		"utente|destinatario", "mittente|dominio"},
	{smtp.MailboxDisabled, []string{"Tento # není aktivní", "Tento # byl zrušen"}, "účet|uživatel", "odesílatel|server"},
	{smtp.MailboxNotFound, []string{"Δεν βρέθηκε # με αυτό το όνομα", "Αυτός ο # δεν είναι γνωστός"}, "χρήστης|παραλήπτης",
		"αποστολέας|τομέας"},
	{smtp.MailboxNotFound, []string{"Nevarēja atrast šādu #"}, "lietotāju|adresātu", "sūtītāju|serveri"},
	{smtp.MailboxFull, []string{"# megtelt", "A # kvótája betelt"}, "postafiók|felhasználó", "feladó"},
}

// What is said of addresses of hosts, of networks and of messages is no plain statement about a mailbox.
func TestOtherAddressesAreNoMailboxes(t *testing.T) {
	eachCode(t, []string{"550", "550 5.1.1", "553 5.3.0"}, append(draw(t, "(IP-Adresse|Adresse IP|Dirección IP|Indirizzo IP|Alamat IP|IP地址|адрес узла|indirizzo di rete|发件人地址|Адрес отправителя) "+
		"(unbekannt|inconnue|desconocida|sconosciuto|tidak valid|无效|не найден|non valido|不存在)"),
		"Die Adresse wurde gesperrt wegen Missbrauch", "地址被列入禁用名单", "User deleted your message",
		"Message to this user was deleted",
		"recipient has no interest in unknown persons", "invalid user authentication token"), endsNothing)
}

// Plain refusals are answers under the codes that fit, whatever signs stand around them; the same said of
// our sender or of a domain is none, and neither is a refusal for now.
func TestPlainRefusalsInManyLanguages(t *testing.T) {
	tried := 0
	for _, s := range spokenRefusals {
		for _, form := range s.forms {
			for _, noun := range strings.Split(s.nouns, "|") {
				text := strings.ReplaceAll(form, "#", noun)
				for _, code := range []string{"550 ", "551 ", "553 5.3.0 ", "554 5.0.0 ", "550 5.2.0 ", "552 5.5.0 "} {
					for _, dress := range []string{"#", "<john.doe@example.com>: #", "Sorry… «#»!",
						"Sorry. / # / (in reply to RCPT TO)", "# https://help.example.org/spam"} {
						v := judgeAt(t, code+strings.ReplaceAll(dress, "#", text), someHost)
						if v.Outcome != smtp.Invalid || v.Bare || (v.Reason == smtp.MailboxFull) != (s.reason == smtp.MailboxFull) {
							t.Errorf("%s%s: %s by %s", code, strings.ReplaceAll(dress, "#", text), v.golden(), v.Rule)
						}
						tried++
					}
				}
				if v := judgeAt(t, "450 "+text, someHost); v.Outcome != smtp.Undecided {
					t.Errorf("450 %s: %s by %s", text, v.golden(), v.Rule)
				}
			}
			for _, other := range strings.Split(s.others, "|") {
				endsNothing(t, "550 "+strings.ReplaceAll(form, "#", other))
			}
		}
	}
	effort.ErrorIf(t, tried < 3000, "only %d were tried", tried)
}

// sentences returns those of testdata/translated.txt, which has one in a line, and of testdata/spoken.txt, by what they
// say.
func sentences(t *testing.T) map[string][]string {
	t.Helper()
	list, about := map[string][]string{}, ""
	for _, name := range []string{"translated", "spoken"} {
		content := effort.Must(os.ReadFile("testdata/" + name + ".txt"))(t)
		for line := range strings.SplitSeq(strings.ReplaceAll(string(content), "\n ", " "), "\n") {
			if heading, found := strings.CutPrefix(line, "## "); found {
				about = heading
			} else if _, many, _ := strings.Cut(line, ": "); name == "spoken" && many != "" && line[0] != '#' {
				list[about] = append(list[about], strings.Split(many, " / ")...)
			} else if line != "" && line[0] != '#' {
				list[about] = append(list[about], line)
			}
		}
	}
	return list
}

// What is said of users and mailboxes in many languages is read, with and without accents; what is said of other
// things makes no address invalid.
func TestSentencesOfManyLanguages(t *testing.T) {
	list, missed := sentences(t), 0
	for about, code := range map[string]string{"missing": "550 ", "disabled": "550 ", "full": "552 "} {
		effort.FatalIf(t, len(list[about]) < 100, "only %d sentences for %s", len(list[about]), about)
		for _, text := range list[about] {
			for _, form := range []string{text, withoutAccents(text)} {
				v := judgeAt(t, code+strings.ReplaceAll(form, "^", "john.doe@example.com"), someHost)
				if v.Outcome != smtp.Invalid || v.Bare || about == "full" && v.Reason != smtp.MailboxFull {
					missed++
					t.Logf("missed: %s: %s by %s", form, v.golden(), v.Rule)
				}
			}
		}
	}
	if missed > 10 { // 4 sentences say "incorrect account" or "redirection" as nobody else does
		t.Errorf("%d were missed", missed)
	}
	for _, text := range list["not"] {
		endsNothing(t, "550 "+text)
	}
	effort.ErrorIf(t, len(list["not"]) < 700, "only %d sentences about other things", len(list["not"]))
}

// What is said under a condition is not said, in any language; a condition in another clause changes nothing.
func TestConditionsSayNothing(t *testing.T) {
	conditions, language := map[string]string{}, ""
	for line := range strings.Lines(languagesFile) {
		if line[0] == '[' {
			language = line[1:strings.IndexByte(line, ']')]
		} else if words, found := strings.CutPrefix(line, "if: "); found {
			words, _, _ = strings.Cut(strings.TrimSpace(words), ",")
			conditions[language] = draw(t, words)[0]
		}
	}
	content := effort.Must(os.ReadFile("testdata/spoken.txt"))(t)
	tried, about := 0, ""
	for line := range strings.SplitSeq(strings.ReplaceAll(string(content), "\n ", " "), "\n") {
		if heading, found := strings.CutPrefix(line, "## "); found {
			about = heading
		}
		language, list, _ := strings.Cut(line, ": ")
		word := conditions[language]
		for text := range strings.SplitSeq(list, " / ") {
			plain := judgeAt(t, "550 "+text+" ", someHost)
			if about == "not" || word == "" || strings.ContainsAny(text, ".,;:()!?^-_") || !strings.Contains(text, " ") ||
				isASCII(text[:1]) != isASCII(word[:1]) || plain.Outcome != smtp.Invalid || plain.Bare {
				continue
			}
			tried++
			endsNothing(t, "550 "+word+" "+text)
			endsIt(t, "550 "+text+"; "+word)
		}
	}
	effort.ErrorIf(t, tried < 500, "only %d were tried", tried)
}

// withoutAccents writes as servers do that know ASCII only, in scripts that have it.
func withoutAccents(text string) string {
	return strings.Map(func(r rune) rune {
		if base, accented := unaccented()[r]; accented {
			return base
		}
		return r
	}, text)
}

// A name of a product beside a plain statement about a mailbox changes nothing; beside a refusal of us it doesn't make
// it one about the mailbox.
func TestNamesOfProductsDecideNothing(t *testing.T) {
	products := []string{"Barracuda Spam Firewall", "Barracuda Spam & Virus Firewall",
		"Symantec Messaging Gateway", "Sophos Anti-Virus",
		"FortiMail AntiSpam", "Proofpoint Protection Server", "Cisco Email Security Appliance",
		"GFI MailEssentials AntiSpam 21.5",
		"MDaemon with SecurityPlus AntiVirus", "Trend Micro InterScan Messaging Security"}
	dresses := []string{"# (%)", "# [%]", "#; %", "# - %", "#. Powered by %",
		"#. This mail server is protected by %.", "# %"}
	refusals := []string{"User unknown", "550 5.1.1", "Mailbox is full", "Account is disabled",
		"Empfänger unbekannt", "Unknown recipient <john.doe@example.com>"}
	for _, refusal := range refusals {
		code, text := "550 ", refusal
		if strings.HasPrefix(refusal, "550") {
			code, text = "550 5.1.1 ", "No such user"
		}
		want := judgeAt(t, code+text, someHost)
		for _, product := range append(products, "Acmeguard Antispam Gateway") {
			for _, dress := range dresses {
				if product == "Acmeguard Antispam Gateway" && !strings.ContainsAny(dress, "([") {
					continue // nobody knows it: only between brackets
				}
				form := code + strings.NewReplacer("#", text, "%", product).Replace(dress)
				if v := judgeAt(t, form, someHost); v.Outcome != smtp.Invalid || v.golden() != want.golden() {
					t.Errorf("%s: %s by %s, without the product %s", form, v.golden(), v.Rule, want.golden())
				}
			}
		}
	}
	for _, ours := range []string{"Rejected by %", "User unknown: blocked by %", "Your message was refused (%)",
		"Sender denied - %", "User unknown, your IP is listed (%)", "% says: spam", "Policy of %"} {
		for _, product := range products {
			endsNothing(t, "550 5.1.1 "+strings.ReplaceAll(ours, "%", product))
		}
	}
}

// What stands besides, such as where a mailbox is, is no subject of a sentence; where it is, it stays one.
func TestAsides(t *testing.T) {
	eachCode(t, []string{"550"}, slices.Concat(
		draw(t, "(Error|SMTP error|Delivery failed): (that inbox|this addressee) (was not found|cannot be located)(| on this server| on our mail server)"),
		draw(t, "(Fehler|Grund): (Kennung unbekannt|Postfach nicht angelegt)(| auf diesem Server)"),
		draw(t, "(El buzón|La casilla) no existe (en este servidor|en nuestro servidor de correo)")), endsIt)
	eachCode(t, []string{"550"}, slices.Concat(
		draw(t, "(User|Recipient|Mailbox): (unknown error|server unknown|error in a table|delivery script not found)"),
		draw(t, "(The|Our) (server|database) of the (user|recipient) (is unknown|does not exist|was not found)"),
		[]string{"No account for this gateway", "No account at this gateway",
			"Unbekannter Fehler beim Zustellen an den Benutzer",
			"El servidor del destinatario no existe", "Неизвестная ошибка пользователя",
			"access list: user not in the allowed list",
			"mailbox store is closed", "mailbox server was shut down", "the recipient's server is dead", "此地址没有权限",
			"Ihr Konto ist abgelaufen", "Platnost vašeho účtu skončila", "Din konto er utløpt",
			"Uw account is verlopen", "حسابك منتهي"}), endsNothing)
	eachCode(t, []string{"550 5.1.1"}, // it speaks of a mailbox
		[]string{"No account for this gateway", "No account at this gateway"}, endsNothing)
}

// TestUnseen scores the rules on replies that they were not made from: what is missed of plain refusals, and what
// would end an address whose mailbox is not what was refused. Its figures are printed with -v.
func TestUnseen(t *testing.T) {
	for of, s := range scoreReplies(t, "testdata/unseen.txt", t.Errorf) {
		effort.ErrorIf(t, s.missed*20 > s.of, "%s: %d of %d are missed, more than 5 %%", of, s.missed, s.of)
	}
}

// replyScore counts the replies of one kind: the plain refusals that were missed, the others that would falsely end
// an address, and those of which the rules are in doubt.
type replyScore struct{ of, missed, falsely, bare int }

// scoreReplies judges the replies of a file, prints what is missed, calls falsely for each that would falsely end an
// address, and returns the scores by kind.
func scoreReplies(t *testing.T, file string, falsely func(format string, args ...any)) map[string]*replyScore {
	t.Helper()
	content := effort.Must(os.ReadFile(file))(t)
	scores, about, aside := map[string]*replyScore{}, "", false
	for line := range strings.SplitSeq(string(content), "\n") {
		if heading, found := strings.CutPrefix(line, "## "); found {
			about, aside = strings.CutSuffix(heading, ", put aside")
			continue
		}
		if line == "" || line[0] == '#' || about == "open" {
			continue
		}
		v := judgeAt(t, strings.ReplaceAll(line, "^", "john.doe@example.com"), someHost)
		plain, of := !strings.HasPrefix(about, "not"), about
		if plain {
			of = "plain refusals"
		}
		if aside {
			of += ", put aside"
		}
		if scores[of] == nil {
			scores[of] = &replyScore{}
		}
		scores[of].of++
		switch {
		case plain && (v.Outcome != smtp.Invalid || (v.Reason == smtp.MailboxFull) != (about == "full")):
			scores[of].missed++
			t.Logf("missed: %s: %s by %s", line, v.golden(), v.Rule)
		case !plain && (v.Outcome == smtp.Valid || v.Outcome == smtp.Invalid && !v.Bare):
			scores[of].falsely++
			falsely("false: %s: %s by %s", line, v.golden(), v.Rule)
		case v.Bare:
			scores[of].bare++
		}
	}
	for of, s := range scores {
		t.Logf("%s: %d, missed %d (%.1f %%), false %d, bare %d",
			of, s.of, s.missed, 100*float64(s.missed)/float64(s.of), s.falsely, s.bare)
	}
	return scores
}

// What a server says in a charset of its country is understood as if it were UTF-8, and words about senders
// stay words about senders. Hosts under .com give no hint.
func TestLegacyCharsets(t *testing.T) {
	for _, test := range []struct {
		charset encoding.Encoding
		host    string
		missing string
		sender  string
	}{
		{charmap.ISO8859_1, "mx.example.de", "(Empfänger unbekannt|Postfach überfüllt|Benutzer existiert nicht, geprüft)", "Absender für Empfänger unbekannt"},
		{charmap.Windows1252, "mx.example.fr", "(Boîte aux lettres inexistante|Compte désactivé|Adresse inconnue, désolé)", "Expéditeur inconnu"},
		{charmap.ISO8859_15, "mx.example.es", "(El buzón no existe|Dirección desconocida)", "Remitente con dirección desconocida"},
		{charmap.Windows1250, "mx.example.cz", "(Schránka neexistuje|Uživatel neznámý)", "Odesílatel neznámý"},
		{charmap.ISO8859_2, "mx.example.pl", "(Skrzynka jest pełna|Nieznany użytkownik)", "Nieznany nadawca, serwer odrzucił żądanie"},
		{charmap.Windows1251, "mx.example.ru", "(Пользователь не найден|Почтовый ящик переполнен|Адресат неизвестен)", "Отправитель неизвестен, адрес отклонен"},
		{charmap.KOI8R, "mx.example.ru", "(Пользователь не найден|Почтовый ящик переполнен|Адресат неизвестен)", "Отправитель неизвестен, адрес отклонен"},
		{charmap.KOI8U, "mx.example.ua", "(Користувача не знайдено|Скринька переповнена)", "Відправника не знайдено"},
		{charmap.Windows1253, "mx.example.gr", "(Ο χρήστης δεν υπάρχει|Άγνωστος παραλήπτης)", "Άγνωστος αποστολέας"},
		{charmap.Windows1254, "mx.example.tr", "(Kullanıcı bulunamadı|Posta kutusu dolu, alıcı değişti)", "Gönderen bulunamadı"},
		{charmap.Windows1255, "mx.example.il", "(המשתמש לא קיים|תיבת הדואר מלאה)", "השולח לא קיים"},
		{charmap.Windows1256, "mx.example.sa", "(المستخدم غير موجود|الحساب معطل)", "المرسل غير موجود"},
		{charmap.Windows874, "mx.example.th", "(ไม่พบผู้ใช้|กล่องจดหมายเต็ม)", "ไม่พบผู้ส่ง"},
		{simplifiedchinese.GBK, "mx.example.cn", "(用户不存在|收件人邮箱已满|该账号被锁定)", "发件人不存在"},
		{traditionalchinese.Big5, "mx.example.tw", "(使用者不存在|信箱已滿|查無此收件者帳號)", "寄件者不存在"},
		{japanese.ShiftJIS, "mx.example.jp", "(ユーザーが存在しません|宛先不明です)", "送信者が存在しません"},
		{japanese.EUCJP, "mx.example.jp", "(ユーザーが存在しません|宛先が見つかりません)", "送信者が存在しません"},
		{japanese.ISO2022JP, "mx.example.jp", "(ユーザーが存在しません|宛先が見つかりません)", "送信者が存在しません"},
		{korean.EUCKR, "mx.example.kr", "(존재하지 않는 사용자입니다|수신자를 찾을 수 없습니다)", "발신자를 찾을 수 없습니다"},
	} {
		judge := func(text, host string) Verdict {
			line, err := test.charset.NewEncoder().String(text)
			effort.OK(t, err, text)
			return Builtin().Judge(evidence.Note(evidence.Raw{Stage: smtp.StageRcpt, Host: host,
				Reply: smtp.Reply{Code: 550, Lines: []string{line}}, Address: smtp.Address{Local: "x", Domain: "example.com"}}))
		}
		for _, host := range []string{test.host, "mx.example.com"} {
			if host != test.host && (test.charset == charmap.Windows1254 || test.charset == charmap.Windows1255) {
				continue // "ı" is a Czech "ý" elsewhere, and Hebrew is Russian
			}
			for _, text := range draw(t, test.missing) {
				for _, form := range []string{text, text + "!", "Oops: " + text + " (550)", text + ". " + text} {
					if v := judge(form, host); v.Outcome != smtp.Invalid || v.Bare {
						t.Errorf("%v at %s: %s: %s by %s", test.charset, host, form, v.golden(), v.Rule)
					}
				}
			}
			if v := judge(test.sender, host); v.Outcome == smtp.Invalid && !v.Bare {
				t.Errorf("%v at %s: %s: %s by %s", test.charset, host, test.sender, v.golden(), v.Rule)
			}
		}
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	l := spokenLanguages()
	for text, want := range map[string]statement{
		"kein benutzer mit dieser kennung wurde gefunden":         saysMissing,
		"nicht angenommen. benutzer bekannt":                      saysNothing, // another sentence
		"für diesen benutzer wurden keine einstellungen gefunden": saysNothing,
		"la dirección no está asociada a ninguna cuenta":          saysMissing,
		"la fuente no está asociada al usuario":                   saysNothing, // one mailbox: of what isn't linked to it
		"e mail ungültig":                                         saysMissing,
		"e mail gelöscht":                                         saysNothing, // perhaps a message
		"konto gelöscht":                                          saysClosed,
		"konto gelöscht, kein speicherplatz":                      saysFull,
		"empfänger unbekannt, absender nicht berechtigt":          saysNothing,
		"user onbekend":                                           saysMissing, // a word for all languages
		"adresse voll":                                            saysFull,
		"postafiók vol":                                           saysNothing, // words of two languages
		"el usuario ha ocupado todo el espacio de su buzón":       saysFull,    // room, and that it is spent
		"el usuario ha ocupado su buzón":                          saysNothing,
		"user marked, user last seen":                             saysNothing, // "as" and "last" may be of any language
		"kontot är låst":                                          saysClosed,  // brief words of one language
		"there is no user in our list on monday":                  saysMissing, // "on" is Hungarian for "you"
		"ihr postfach ist voll":                                   saysNothing, // the sender's
		"":                                                        saysNothing,
	} {
		effort.Is(t, l.statementOf(apart(text)), want, fmt.Sprintf("%q says", text))
	}
	for _, file := range []string{"[de]\nname: voll", "full: voll", "[de]\nfull: (voll", "[de]\nfull: Voll"} {
		_, err := readLanguages(file)
		effort.ErrorIf(t, err == nil, "%q has no fault", file)
	}
}
