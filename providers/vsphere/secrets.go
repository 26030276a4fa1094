package vsphere

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// credentials are used to open a session.
type credentials struct {
	user, password string
	// sessionURL is a service that hands out sessions, and sessionToken its credential.
	sessionURL, sessionToken string
}

func (c credentials) isEmpty() bool { return c.sessionURL == "" && (c.user == "" || c.password == "") }

// errNoCredentials says that a Secret has nothing for a vCenter.
var errNoCredentials = errors.New("no key for this server")

// parseCredentials finds the credentials of a server among the keys of a Secret. Unknown keys are returned in ignored; they are common.
func parseCredentials(data map[string][]byte, server string) (c credentials, ignored []string, err error) {
	suffix := ""
	for key, value := range data {
		if s, ok := strings.CutPrefix(key, "server_"); ok && string(value) == server {
			suffix = s
		}
	}
	trimmed := func(key string) string { return strings.TrimRight(string(data[key]), "\r\n") }
	for _, key := range slices.Sorted(maps.Keys(data)) { // faults are reported in a fixed order
		known := isClassicKey(key)
		for _, kind := range []string{"server_", "username_", "password_"} {
			if s, ok := strings.CutPrefix(key, kind); ok {
				known = true
				if _, has := data["server_"+s]; !has {
					err = fmt.Errorf("the key %s has no server_%s beside it, which says whose it is", key, s)
				}
			}
		}
		if !known {
			ignored = append(ignored, key)
		}
	}
	c = credentials{
		user: trimmed(server + ".username"), password: trimmed(server + ".password"),
		sessionURL: trimmed(server + ".vc-session-manager-url"), sessionToken: trimmed(server + ".vc-session-manager-token"),
	}
	if c.isEmpty() && data["server_"+suffix] != nil {
		c.user, c.password = string(data["username_"+suffix]), string(data["password_"+suffix])
	}
	switch {
	case !c.isEmpty():
		return c, ignored, nil // the fault concerns another server
	case err != nil:
		return c, ignored, err
	case c.user != "" || c.password != "":
		return c, ignored, errors.New("the user or the password is missing")
	}
	return c, ignored, errNoCredentials
}

// isClassicKey reports whether a key has the form <server>.<what>.
func isClassicKey(key string) bool {
	kinds := []string{".username", ".password", ".vc-session-manager-url", ".vc-session-manager-token"}
	return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasSuffix(key, kind) })
}

// readDirectory reads the files of a folder as the keys of a Secret.
func readDirectory(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of credentials: %w", err)
	}
	data := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // the links with which kubelet replaces the files
		}
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the folder of credentials: %w", err)
		}
		data[e.Name()] = text
	}
	return data, nil
}
