package evidence

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// charset is an encoding of servers that do not use UTF-8.
type charset struct {
	encoding.Encoding
	common    string // frequent letters of its texts, in lower case
	countries string // top-level domains of hosts that use it, each between spaces
}

const (
	latin    = "éèêàçäöüßñóíáúãõåøæôûîëïìòùâ"
	central  = "ąęćłńóśźżáéíčďěňřšťúůýžőűăâîşţđôäöüß"
	cyrillic = "оеаинтсрвлкмдпуяыьзбгчйхжюшщэцъіїєґўјљњћђџё"
	kana     = "をはがのにませんありましたいなし先宛存在不明無効者受信登録容量ユーザメルボックスアドレカウントー"
)

// charsets are tried in this order; of equal fits the first wins.
var charsets = []charset{
	{charmap.Windows1252, latin, " de at ch fr be nl es it pt br mx ar cl co pe ve se no dk fi is ie uk us ca au eu "},
	{charmap.Windows1250, central, " pl cz sk hu si hr ba ro md al rs me "},
	{charmap.ISO8859_2, central, " pl cz sk hu si hr ba ro "},
	{charmap.Windows1254, "ığşçöüâ", " tr az "},
	{charmap.Windows1257, "āčēģīķļņšūžąęėįųõäöü", " ee lv lt "},
	{charmap.Windows1251, cyrillic, " ru su by kz ua bg rs mk kg uz xn--p1ai xn--j1amh "},
	{charmap.KOI8R, cyrillic, " ru su by kz xn--p1ai "},
	{charmap.KOI8U, cyrillic, " ua xn--j1amh "},
	{charmap.ISO8859_5, cyrillic, " ru by bg rs mk "},
	{charmap.CodePage866, cyrillic, " ru by kz "},
	{charmap.Windows1253, "αοιετσνηυρπκλμωςχδθγάέήίόύώφβξζψ", " gr cy xn--qxam "},
	{charmap.Windows1255, "אבגדהוזחטיכלמנסעפצקרשתםןךףץ", " il "},
	{charmap.Windows1256, "ابتثجحخدذرزسشصضطظعغفقكلمنهويةىأإآءئؤپچژگ", " sa ae eg jo kw qa om iq ir sy lb ma dz tn ly ye pk "},
	{charmap.Windows874, "กขคงจชซญดตถทธนบปผฝพฟมยรลวสหอฮะาิีึืุูเแโใไ่้์ัำ็ู้", " th "},
	{simplifiedchinese.GB18030, "的不存在用户邮件箱收地址无效账帐号未找到此已满服务器拒绝发送系统错误人该名没有您被停锁定容量超出限空间足", " cn xn--fiqs8s sg "},
	{traditionalchinese.Big5, "的不存在用戶使者郵件信箱收地址無效帳號未找到此已滿伺服器拒絕發送系統錯誤人該名沒有您被停鎖定容量超出限空間足", " tw hk mo "},
	{japanese.ShiftJIS, kana, " jp "},
	{japanese.EUCJP, kana, " jp "},
	{korean.EUCKR, "이다는을를가에의사용자존재하지않습니수신메일계정주소없찾알함인량초과차받편잘못된", " kr "},
}

// readable returns the lines of a host's reply as UTF-8. Other lines are decoded with the charset that fits their
// letters and the host's country best. They stay as they are if none fits.
func readable(lines []string, host string) []string {
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "\x1b$") || !utf8.ValidString(line) }) {
		return lines
	}
	text := strings.Join(lines, "\n")
	if strings.Contains(text, "\x1b$") { // ISO-2022-JP switches to two bytes with this (RFC 1468)
		if plain, err := japanese.ISO2022JP.NewDecoder().String(text); err == nil {
			return strings.Split(plain, "\n")
		}
	}
	good, bad := 0, 0
	for i, r := range text {
		if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
			bad++
		} else if r >= utf8.RuneSelf {
			good++
		}
	}
	if good >= bad { // UTF-8, perhaps cut somewhere
		return lines
	}
	country := " " + host[strings.LastIndexByte(host, '.')+1:] + " "
	best, most := text, 0
	for _, c := range charsets {
		plain, err := c.NewDecoder().String(text)
		if err != nil {
			continue
		}
		fit := c.fit(plain)
		if fit > 0 && strings.Contains(c.countries, country) {
			fit += 4
		}
		if fit > most {
			best, most = plain, fit
		}
	}
	if most == 0 {
		return lines
	}
	return strings.Split(best, "\n")
}

// fit returns how well a text fits the charset: by its frequent letters, and by whether Latin letters stand alone
// among ASCII letters while letters of other scripts stand together.
func (c *charset) fit(text string) int {
	fit, before := 0, rune(' ')
	for _, r := range text {
		low := unicode.ToLower(r)
		wide := unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
		switch {
		case r < utf8.RuneSelf:
			if isLetter(r) && before >= utf8.RuneSelf && !unicode.Is(unicode.Latin, before) {
				fit--
			}
		case r == utf8.RuneError || unicode.Is(unicode.Co, r):
			return 0
		case strings.ContainsRune(c.common, r) && wide:
			fit += 6
		case strings.ContainsRune(c.common, r):
			fit += 3
		case strings.ContainsRune(c.common, low):
			fit++
		case unicode.Is(unicode.Hangul, r):
			fit++
		case !unicode.IsLetter(r) && !unicode.IsMark(r):
			fit -= 2
		}
		switch latin := unicode.Is(unicode.Latin, r); {
		case r < utf8.RuneSelf || wide:
		case latin && before >= utf8.RuneSelf && unicode.IsLetter(before):
			fit -= 4 // such as the two of "íé", frequent only when another script is read as Latin
		case !latin && isLetter(before):
			fit -= 4
		}
		before = r
	}
	return fit
}

func isLetter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }

// reader reads numbers and bytes from raw; on an error it returns zero values and sets bad.
type reader struct {
	raw []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.raw)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.raw)
	r.skip(n)
	return v
}

// skip moves past a number of n bytes. If n is not positive there was none, and the number is 0 or unused.
func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad, r.raw = true, nil
		return
	}
	r.raw = r.raw[n:]
}

// below reads a number that must be below the given bound.
func (r *reader) below(most int) int {
	v := r.uvarint()
	if r.bad || v >= uint64(max(0, most)) {
		r.bad = true
		return 0
	}
	return int(v)
}

// count reads the number of lines that follow; each takes at least a byte.
func (r *reader) count() int { return r.below(len(r.raw) + 1) }

// few reads a number of items, as one byte, within the given bound.
func (r *reader) few(most int) int {
	b := r.bytes(1)
	if r.bad || int(b[0]) > most {
		r.bad = true
		return 0
	}
	return int(b[0])
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.raw) {
		r.bad, r.raw = true, nil
		return nil
	}
	b := r.raw[:n]
	r.raw = r.raw[n:]
	return b
}
