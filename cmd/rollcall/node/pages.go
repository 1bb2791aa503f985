package node

import (
	"context"
	"fmt"
	"net/url"
	"runtime/debug"

	"github.com/google/uuid"

	"rollcall/config"
	httpd "rollcall/http"
	pages "rollcall/http/dashboard"
	"rollcall/http/dashboard/signin"
	"rollcall/http/dashboard/signin/provider"
	"rollcall/ledger/sqlstore"
)

// addPages has the API's listener serve the pages, if they are on.
func (n *Node) addPages(ctx context.Context, c config.Config, book *sqlstore.Store, public *httpd.Options) error {
	if !c.Dashboard.Enabled {
		return nil
	}
	asked, err := ProviderOf(c.Dashboard)
	if err != nil {
		return err
	}
	served, err := pages.New(ctx, pages.Options{Book: book, PublicURL: n.pagesURL, UploadURL: n.UploadURL,
		MaxFileBytes: c.Limits.MaxFileBytes, MaxRows: c.Limits.MaxRows, Contact: c.Dashboard.Contact,
		SessionIdle: c.Dashboard.SessionIdle.Duration, SessionLife: c.Dashboard.SessionLife.Duration,
		Version: programVersion(), Dev: n.Lab != nil, Checks: func() bool { return n.Identity().Probing },
		PerWorkspace: public.PerWorkspace, Waits: n.inspector.Verification, Provider: asked, Wake: public.Wake,
		Log:        public.Log,
		Registerer: public.Registerer})
	if err != nil {
		return fmt.Errorf("start the pages: %w", err)
	}
	n.add("pages", func(context.Context) error { served.Stop(); return nil })
	public.Pages, public.PageRoutes = served.Handler(), pages.Routes()
	return nil
}

// programVersion is what the foot of each page says.
func programVersion() string { return VersionOf(debug.ReadBuildInfo()).Version }

// ProviderOf is the provider of the settings, with its secret read; nil for none. It asks no network.
func ProviderOf(d config.Dashboard) (*pages.Provider, error) {
	if !d.Enabled || d.OIDCIssuer == "" {
		return nil, nil
	}
	secret, err := provider.ReadSecret(d.OIDCSecretFile)
	if err != nil {
		return nil, fmt.Errorf("dashboard.oidc_secret_file: %w", err)
	}
	return &pages.Provider{Issuer: d.OIDCIssuer, ClientID: d.OIDCClientID, Secret: secret, Name: d.OIDCName}, nil
}

// pagesURL is where the pages are; "" until the listener has its address, and when they are off.
func (n *Node) pagesURL() string {
	if url := n.pages.Load(); url != nil {
		return *url
	}
	return ""
}

// pagesOrigin is scheme, host and port of pagesURL, as browsers send it.
func (n *Node) pagesOrigin() string {
	u, err := url.Parse(n.pagesURL())
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// devEmail is who signs in to the pages of serve --dev.
const devEmail = "dev@rollcall.test"

// DevLink makes a link with which one signs in to the workspace of serve --dev, as its owner.
func (n *Node) DevLink(ctx context.Context, workspace string) (string, error) {
	id, err := uuid.Parse(workspace)
	if err != nil {
		return "", err
	}
	token, err := signin.DevLink(ctx, n.Book, id, devEmail)
	return n.pagesURL() + "/link/" + string(token), err
}
