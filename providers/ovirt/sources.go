package ovirt

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
)

// secretVariables are the variables that the folder of a Secret may hold as files, by their names in small letters.
func secretVariables() []string {
	return []string{envURL, envUsername, envPassword, envCAFile, envCABundle, envInsecure}
}

func lookup(env func(string) (string, bool), name string) string {
	value, _ := env(name)
	return value
}

// addDirectory lets the files of the folder with a Secret count like variables. User and password are given as files, so that they are
// read again when they change.
func addDirectory(env func(string) (string, bool)) func(string) (string, bool) {
	if env == nil || lookup(env, envSecrets) == "" {
		return env
	}
	dir := lookup(env, envSecrets)
	return func(name string) (string, bool) {
		if value, ok := env(name); ok && value != "" {
			return value, ok
		}
		variable, asFile := strings.CutSuffix(name, fileSuffix)
		secret := variable == envUsername || variable == envPassword
		if !slices.Contains(secretVariables(), variable) || asFile != secret || lookup(env, variable) != "" {
			return "", false
		}
		path := filepath.Join(dir, strings.ToLower(variable))
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) == "" {
			return "", false
		}
		if asFile {
			return path, true
		}
		return strings.TrimSpace(string(text)), true
	}
}

// endpoint are the addresses of an engine.
type endpoint struct {
	// root is the host, api the entry of the API below it.
	root, api string
}

const (
	enginePath = "/ovirt-engine"
	apiPath    = "/api"
)

var errURI = errors.New(`is not an address of the form "https://engine[:port]/ovirt-engine/api"`)

// newEndpoint understands the forms in which the address of an engine has been written: with and without a slash at its end, the API's
// path, and a version. Version 3 of the API is gone; its paths lead nowhere.
func newEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return endpoint{}, errURI
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, errors.New("must not hold a user, a query or a fragment; user and password have keys of their own")
	}
	path := strings.TrimRight(u.Path, "/")
	for _, version := range []string{"/v3", "/v4"} {
		path = strings.TrimSuffix(path, version)
	}
	path = strings.TrimSuffix(strings.TrimRight(path, "/"), apiPath)
	if path == "" {
		path = enginePath
	}
	root := u.Scheme + "://" + u.Host
	return endpoint{root: root, api: root + path + apiPath}, nil
}

// trust says which certificates are accepted.
func (c Config) trust() restapi.Trust {
	return restapi.Trust{
		File: c.CAFile, FilePlace: "cafile", Bundle: c.CABundle, BundlePlace: "environment variable " + envCABundle, Insecure: c.Insecure,
	}
}
