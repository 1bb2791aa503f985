package verdict

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"rollcall/smtp/evidence"
)

// phrasesMax bounds the phrases of one rule after expansion. Guess: twice the largest built-in rule.
const phrasesMax = 2000

// marks are the words in phrases for the marks in a cleaned text.
var marks = strings.NewReplacer("<address>", string(evidence.MarkAsked), "<ours>", string(evidence.MarkOurs))

// parseWords expands and checks the phrases of a rule. "(a|b) c" is short for "a c" and "b c"; a final "*" allows
// any ending of the last word. "<address>" stands for the asked address, "<ours>" for our names and addresses.
func parseWords(words []string) ([]string, error) {
	var list []string
	var twice []string
	seen := map[string]bool{}
	for _, text := range words {
		expanded, err := expand(text)
		if err != nil {
			return nil, err
		}
		for _, phrase := range expanded {
			phrase = marks.Replace(phrase)
			if err := checkPhrase(phrase); err != nil {
				return nil, err
			}
			if seen[phrase] {
				twice = append(twice, phrase)
			}
			seen[phrase] = true
			list = append(list, phrase)
		}
		if len(list) > phrasesMax {
			return nil, fmt.Errorf("there are more than %d phrases: split the rule", phrasesMax)
		}
	}
	if len(twice) > 0 {
		return nil, fmt.Errorf("%q are given twice: remove one of each", twice)
	}
	if words != nil && len(list) == 0 {
		return nil, fmt.Errorf("an empty list of words never matches: remove it to match any text")
	}
	return list, nil
}

// expand returns the phrases that "(a|b) c (d|e)" stands for. Brackets do not nest.
func expand(text string) ([]string, error) {
	list := []string{""}
	for rest := text; rest != ""; {
		plain, group, found := strings.Cut(rest, "(")
		alternatives, after, closed := strings.Cut(group, ")")
		if found && (!closed || strings.Contains(alternatives, "(")) || strings.Contains(plain, ")") {
			return nil, fmt.Errorf("%q: brackets must close and cannot be within each other", text)
		}
		var longer []string
		for _, start := range list {
			for _, a := range strings.Split(alternatives, "|") {
				longer = append(longer, start+plain+a)
			}
			if len(longer) > phrasesMax {
				return nil, fmt.Errorf("%q expands to more than %d phrases: split the rule", text, phrasesMax)
			}
		}
		list, rest = longer, after
	}
	for i := range list { // an empty alternative leaves its space
		list[i] = strings.Join(strings.Fields(list[i]), " ")
	}
	return list, nil
}

// checkPhrase refuses a phrase that can never be in a cleaned text.
func checkPhrase(phrase string) error {
	body := strings.TrimSuffix(phrase, "*")
	switch {
	case body == "":
		return fmt.Errorf("an empty phrase is in every text: remove it")
	case !utf8.ValidString(body):
		return fmt.Errorf("%q is not UTF-8", phrase)
	case body != strings.ToLower(body):
		return fmt.Errorf("%q never matches, texts are in lower case: write %q", phrase, strings.ToLower(phrase))
	case strings.Contains(body, "@"):
		return fmt.Errorf("%q never matches, addresses are removed from texts: write the words beside it", phrase)
	}
	if plain := plainPhrase(body); plain != body {
		return fmt.Errorf("%q never matches, whatever stands between words counts as one space: write %q", phrase, plain)
	}
	return nil
}

// plainPhrase replaces everything between words by one space.
func plainPhrase(text string) string {
	between := func(r rune) bool { return r < 0x80 && !evidence.IsWordByte(byte(r)) && !isMark(byte(r)) }
	return strings.Join(strings.FieldsFunc(text, between), " ")
}

// holds reports whether every text with the phrase long also has the phrase short.
func holds(long, short string) bool { return strings.Contains(edged(long), edged(short)) }

// edged returns a phrase with a space on each side; an open phrase has none behind it.
func edged(phrase string) string {
	text, open := strings.CutSuffix(phrase, "*")
	if open {
		return " " + text
	}
	return " " + text + " "
}
