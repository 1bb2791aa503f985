package web

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"rollcall/docs/customers"
)

// GuidePage is one page of the customers' guide, the body of the page "guide".
type GuidePage struct {
	Title string
	Text  template.HTML
}

// guideTitle finds the title of a page, guideLinks links to others, guideElsewhere those to documents that a node
// does not serve, and guideRegions what scrolls by itself.
var (
	guideTitle     = regexp.MustCompile(`(?m)^# (.+)$`)
	guideLinks     = regexp.MustCompile(`href="(\w+)\.md(#[\w-]+)?"`)
	guideRegions   = regexp.MustCompile("<table>|<pre>")
	guideElsewhere = regexp.MustCompile(`<a href="\.\.[^"]*">(.*?)</a>`)
)

// guide is every page by its name, made once. Its Markdown is ours: raw HTML in it is left out all the same.
var guide = sync.OnceValues(func() (map[string]GuidePage, error) {
	pages := map[string]GuidePage{}
	writer := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	names, err := fs.Glob(customers.Files, "*.md")
	for _, name := range names {
		source, failed := customers.Files.ReadFile(name)
		var b bytes.Buffer
		if failed == nil {
			failed = writer.Convert(source, &b)
		}
		title := guideTitle.FindSubmatch(source)
		if failed != nil || title == nil {
			return nil, fmt.Errorf("guide %s: no title, or %w", name, failed)
		}
		text := guideLinks.ReplaceAllString(b.String(), `href="/docs/$1$2"`)
		text = guideElsewhere.ReplaceAllString(text, "$1")
		if name == "errors.md" {
			text = withCodeNames(text)
		}
		regions := 0
		text = guideRegions.ReplaceAllStringFunc(text, func(tag string) string {
			regions++ // each has a name of its own
			label := fmt.Sprintf(` tabindex="0" role="region" aria-label="Example %d"`, regions)
			if tag == "<pre>" {
				return `<pre class="talk"` + label + ">"
			}
			return `<div class="scroll"` + label + "><table>"
		})
		text = strings.ReplaceAll(text, "</table>", "</table></div>")
		pages[strings.TrimSuffix(name, ".md")] = GuidePage{Title: string(title[1]), Text: template.HTML(text)}
	}
	return pages, err
})

// guideCode is a code of an error where it stands as one.
var guideCode = regexp.MustCompile(`<code>([a-z]+_[a-z_]+|overloaded)</code>`)

// withCodeNames lets a link lead to the first place of each code: the API's refusals have such a link.
func withCodeNames(text string) string {
	seen := map[string]bool{}
	return guideCode.ReplaceAllStringFunc(text, func(tag string) string {
		code := guideCode.FindStringSubmatch(tag)[1]
		if seen[code] {
			return tag
		}
		seen[code] = true
		return `<code id="` + code + `">` + code + "</code>"
	})
}

// Guide gives a page of the customers' guide: its first one for "". Errors are faults of the documents, which
// tests find.
func Guide(name string) (GuidePage, bool, error) {
	pages, err := guide()
	if name == "" {
		name = "README"
	}
	page, ok := pages[name]
	return page, ok, err
}
