package verdict

import (
	"fmt"
	"testing"

	"rollcall/config/effort"
)

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
