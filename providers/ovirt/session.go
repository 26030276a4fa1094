package ovirt

import (
	"context"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath     = enginePath + "/sso/oauth/token"
	logoutPath    = enginePath + "/services/sso-logout"
	scope         = "ovirt-app-api"
	logoutTimeout = 5 * time.Second
	// minMajor is the first version of the engine with the API that is used.
	minMajor = 4

	checkAddress = "check uri and proxies"
)

// credentials are a user with a password.
type credentials struct{ user, password string }

// credentialsOf returns what reads the credentials for a login. Those in the cloud config are read again from the file; one that cannot
// be used now, as in the middle of a change, leaves those in force that were read before.
func credentialsOf(c Config, in registry.Inputs) func() (credentials, error) {
	return func() (credentials, error) {
		now := c
		if in.FilePath != "" {
			if data, err := os.ReadFile(in.FilePath); err == nil {
				again := in
				again.File = data
				if changed, _, err := parseConfig(again); err == nil && changed.endpoint == c.endpoint {
					now = changed
				} else {
					klog.InfoS("The changed cloud config cannot be used for the next login; the credentials read before stay in force", "file", in.FilePath)
				}
			}
		}
		return credentials{now.Username.Reveal(), now.Password.Reveal()}, nil
	}
}

// login asks for a token, and looks whether it serves with an engine that is new enough.
func (a *api) login(ctx context.Context, c credentials) (restapi.Tokens, error) {
	s, err := a.http.Login(ctx, "logging in", a.endpoint.root+tokenPath, url.Values{
		"grant_type": {"password"}, "scope": {scope}, "username": {c.user}, "password": {c.password},
	})
	if err != nil {
		return s, err
	}
	return s, a.checkVersion(ctx, s)
}

// checkVersion refuses what is no engine, and engines without the API that is used.
func (a *api) checkVersion(ctx context.Context, s restapi.Tokens) error {
	const what = "reading the version of the engine"
	var entry struct {
		Product struct {
			Version struct {
				Major string `json:"major"`
				Full  string `json:"full_version"`
			} `json:"version"`
		} `json:"product_info"`
	}
	if err := cloudapi.NotAbsence(a.get(ctx, s, what, "", &entry)); err != nil {
		return err
	}
	major, err := strconv.Atoi(entry.Product.Version.Major)
	switch {
	case err != nil:
		return cloudapi.Unclear(what, "the answer is not that of an engine; "+checkAddress)
	case major < minMajor:
		return cloudapi.Unclear(what, "the engine has version %s, and this program needs %d.0 or newer", entry.Product.Version.Full, minMajor)
	}
	return nil
}

// close ends the session that is open. That it fails changes nothing: the engine ends idle ones.
func (a *api) close(ctx context.Context) {
	s := a.keeper.Take()
	if s == (restapi.Tokens{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	_, _ = a.http.Post(ctx, "logging out", a.endpoint.root+logoutPath, url.Values{"token": {s.Access}, "scope": {""}})
}
