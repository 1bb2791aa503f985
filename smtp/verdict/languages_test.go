package verdict

import "testing"

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
		"":                                                        saysNothing,
	} {
		if got := l.statementOf(apart(text)); got != want {
			t.Errorf("%q says %d, want %d", text, got, want)
		}
	}
	for _, file := range []string{"[de]\nname: voll", "full: voll", "[de]\nfull: (voll", "[de]\nfull: Voll"} {
		if _, err := readLanguages(file); err == nil {
			t.Errorf("%q has no fault", file)
		}
	}
}
