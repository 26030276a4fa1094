package cloudapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// errFinal is part of the error of a request that must not be repeated at once.
var errFinal = errors.New("the request is not sent again")

// refuseRedirect is the CheckRedirect of every client: a second line behind the transport, which lets no redirect through.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Redirected refuses a redirect. No cloud's API redirects, and a client that follows sends tokens and passwords to a host that nobody
// configured. A list of versions (300, as OpenStack's services answer) is not a redirect by itself.
func Redirected(req *http.Request, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusMultipleChoices, http.StatusNotModified:
		return nil
	}
	if resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode >= http.StatusBadRequest {
		return nil
	}
	target := "nowhere"
	if to, err := req.URL.Parse(resp.Header.Get("Location")); err == nil && resp.Header.Get("Location") != "" {
		target = "to " + to.Scheme + "://" + to.Host
	}
	return &Error{
		Class: ErrTransient, Status: resp.StatusCode, Cause: errFinal,
		Message: fmt.Sprintf("%s redirects %s, which is not followed: no cloud's API redirects; check the configured endpoint, and proxies", req.URL.Host, target),
	}
}

// NoRedirects is an http.RoundTripper that turns every redirect into an error, for the SDKs' own clients, such as those that fetch
// credentials.
func NoRedirects(base http.RoundTripper) http.RoundTripper { return noRedirects{base} }

type noRedirects struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noRedirects) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := Redirected(req, resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// mayHaveCredential refuses to send the credential to any other host.
func (t *transport) mayHaveCredential(to *url.URL) error {
	if t.Hosts == nil || slices.Contains(t.Hosts, to.Scheme+"://"+to.Host) {
		return nil
	}
	return &Error{
		Class: ErrInvalid, NotSent: true, Cause: errFinal,
		Message: fmt.Sprintf("the credential is for %s, and is not sent to %s://%s", strings.Join(t.Hosts, ", "), to.Scheme, to.Host),
	}
}

// HostOf returns scheme and host of an endpoint, as Config.Hosts wants them; "" if there is none.
func HostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
