package verdict

import (
	"fmt"
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
