package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"rollcall/docs"
)

//go:embed assets/*.css assets/*.js assets/*.svg
var assetFiles embed.FS

// assetTypes are the media types, by the extension of the name.
var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml"}

// assetAge is how long a browser keeps a file whose name changes with its content, in seconds.
const assetAge = 31536000

type asset struct {
	kind        string
	plain, gzip []byte
}

// Assets are the files that pages need, by the name in their URL. That name contains a hash of the content.
type Assets struct {
	byURL map[string]asset
	urls  map[string]string // URL of each file, by the name in the folder
}

// NewAssets reads and compresses the files, once for all sites of a process.
var NewAssets = sync.OnceValue(readAssets)

func readAssets() *Assets {
	a := &Assets{byURL: map[string]asset{}, urls: map[string]string{}}
	for _, f := range must(assetFiles.ReadDir("assets")) {
		plain := must(assetFiles.ReadFile(path.Join("assets", f.Name())))
		var b bytes.Buffer
		z := must(gzip.NewWriterLevel(&b, gzip.BestCompression))
		must(z.Write(plain))
		must(z, z.Close())
		end := path.Ext(f.Name())
		sum := sha256.Sum256(plain)
		name := strings.TrimSuffix(f.Name(), end) + "." + hex.EncodeToString(sum[:8]) + end
		if assetTypes[end] == "" {
			panic("no media type for " + f.Name())
		}
		a.byURL[name] = asset{kind: assetTypes[end], plain: plain, gzip: b.Bytes()}
		a.urls[f.Name()] = "/assets/" + name
	}
	return a
}

// must returns a value made from the program's own files. It panics on an error, which tests find.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// URL returns the path of a file by its name in the folder, for templates.
func (a *Assets) URL(name string) (string, error) {
	if u, ok := a.urls[name]; ok {
		return u, nil
	}
	return "", fmt.Errorf("there is no asset %s", name)
}

// URLs returns the paths of all files.
func (a *Assets) URLs() []string { return slices.Sorted(maps.Values(a.urls)) }

// Serve answers a request for a file by the name in its URL. If there is no such file, it returns false without
// answering.
func (a *Assets) Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	found, ok := a.byURL[name]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", found.kind)
	h.Set("Cache-Control", "public, max-age="+strconv.Itoa(assetAge)+", immutable")
	h.Set("Vary", "Accept-Encoding")
	body := found.plain
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = found.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return true
}

// takesGzip reports whether an Accept-Encoding names gzip with a weight above zero.
func takesGzip(values []string) bool {
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(item, " ", ""), ";")
		if strings.EqualFold(coding, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
			return weight == "" || err == nil && q > 0
		}
	}
	return false
}

// GuidePage is one page of the customers' guide, the body of the page "guide".
type GuidePage struct {
	Title string
	Text  template.HTML
}

// guideTitle finds the title of a page, guideLinks finds links to others, guideElsewhere finds links to documents
// that a node does not serve, and guideRegions finds parts that scroll by themselves.
var (
	guideTitle     = regexp.MustCompile(`(?m)^# (.+)$`)
	guideLinks     = regexp.MustCompile(`href="(\w+)\.md(#[\w-]+)?"`)
	guideRegions   = regexp.MustCompile("<table>|<pre>")
	guideElsewhere = regexp.MustCompile(`<a href="\.\.[^"]*">(.*?)</a>`)
)

// guide is every page by its name, made once. Raw HTML is left out, although the Markdown is our own.
var guide = sync.OnceValue(func() map[string]GuidePage {
	pages := map[string]GuidePage{}
	writer := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	for _, name := range must(fs.Glob(docs.Customers, "customers/*.md")) {
		source := must(docs.Customers.ReadFile(name))
		var b bytes.Buffer
		err, title := writer.Convert(source, &b), guideTitle.FindSubmatch(source)
		if err != nil || title == nil {
			panic(fmt.Errorf("guide %s: no title, or %w", name, err))
		}
		text := guideLinks.ReplaceAllString(b.String(), `href="/docs/$1$2"`)
		text = guideElsewhere.ReplaceAllString(text, "$1")
		if name == "customers/errors.md" {
			text = withCodeNames(text)
		}
		regions := 0
		text = guideRegions.ReplaceAllStringFunc(text, func(tag string) string {
			regions++ // each region has a name of its own
			label := fmt.Sprintf(` tabindex="0" role="region" aria-label="Example %d"`, regions)
			if tag == "<pre>" {
				return `<pre class="talk"` + label + ">"
			}
			return `<div class="scroll"` + label + "><table>"
		})
		text = strings.ReplaceAll(text, "</table>", "</table></div>")
		pages[strings.TrimSuffix(path.Base(name), ".md")] = GuidePage{Title: string(title[1]), Text: template.HTML(text)}
	}
	return pages
})

// guideCode matches the code of an error.
var guideCode = regexp.MustCompile(`<code>([a-z]+_[a-z_]+|overloaded)</code>`)

// withCodeNames adds an anchor to the first occurrence of each code: the API's refusals link there.
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

// Guide returns a page of the customers' guide; "" is the first one. Error: Nothing. It panics for faults in the
// documents, which tests find.
func Guide(name string) (GuidePage, error) {
	page, ok := guide()[cmp.Or(name, "README")]
	if !ok {
		return page, Nothing
	}
	return page, nil
}
