package openstack

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// cloudEntry is an entry of clouds.yaml, as documented by openstacksdk.
type cloudEntry struct {
	Cloud        string    `json:"cloud"`
	Profile      string    `json:"profile"`
	Auth         cloudAuth `json:"auth"`
	RegionName   string    `json:"region_name"`
	EndpointType string    `json:"endpoint_type"`
	Interface    string    `json:"interface"`
	Verify       *bool     `json:"verify"`
	CACert       string    `json:"cacert"`
	Cert         string    `json:"cert"`
	Key          string    `json:"key"`
}

type cloudAuth struct {
	AuthURL                     string `json:"auth_url"`
	Token                       string `json:"token"`
	Username                    string `json:"username"`
	UserID                      string `json:"user_id"`
	Password                    string `json:"password"`
	ApplicationCredentialID     string `json:"application_credential_id"`
	ApplicationCredentialName   string `json:"application_credential_name"`
	ApplicationCredentialSecret string `json:"application_credential_secret"`
	ProjectName                 string `json:"project_name"`
	ProjectID                   string `json:"project_id"`
	UserDomainName              string `json:"user_domain_name"`
	UserDomainID                string `json:"user_domain_id"`
	ProjectDomainName           string `json:"project_domain_name"`
	ProjectDomainID             string `json:"project_domain_id"`
	DomainName                  string `json:"domain_name"`
	DomainID                    string `json:"domain_id"`
	TrustID                     string `json:"trust_id"`
}

// withClouds fills in missing keys from clouds.yaml if use-clouds is set.
func withClouds(keys map[string]string, in registry.Inputs) error {
	if keys["[Global] use-clouds"] != "true" {
		return nil
	}
	lookup := func(name string) string {
		if in.LookupEnv == nil {
			return ""
		}
		v, _ := in.LookupEnv(name)
		return v
	}
	file, cloud := cmp.Or(keys["[Global] clouds-file"], lookup("OS_CLIENT_CONFIG_FILE")), cmp.Or(keys["[Global] cloud"], lookup("OS_CLOUD"))
	one, err := readClouds(file, cloud, cmp.Or(lookup("XDG_CONFIG_HOME"), filepath.Join(lookup("HOME"), ".config")))
	if err != nil {
		return &schema.Problem{Place: "clouds.yaml", Reason: err.Error()}
	}
	a := one.Auth
	insecure := ""
	if one.Verify != nil && !*one.Verify {
		insecure = "true"
	}
	for key, value := range map[string]string{
		"auth-url": a.AuthURL, "user-id": a.UserID, "username": a.Username, "password": a.Password, "tenant-id": a.ProjectID, "tenant-name": a.ProjectName,
		"domain-id": a.DomainID, "domain-name": a.DomainName, "user-domain-id": a.UserDomainID, "user-domain-name": a.UserDomainName,
		"tenant-domain-id": a.ProjectDomainID, "tenant-domain-name": a.ProjectDomainName, "application-credential-id": a.ApplicationCredentialID,
		"application-credential-name": a.ApplicationCredentialName, "application-credential-secret": a.ApplicationCredentialSecret, "token": a.Token,
		"trust-id": a.TrustID, "region": one.RegionName, "os-endpoint-type": cmp.Or(one.EndpointType, one.Interface), "ca-file": one.CACert,
		"cert-file": one.Cert, "key-file": one.Key, "tls-insecure": insecure,
	} {
		if name := "[Global] " + key; keys[name] == "" && value != "" {
			keys[name] = value
		}
	}
	return nil
}

// readClouds reads an entry of clouds.yaml. It overrides its public profile, and secure.yaml overrides both.
func readClouds(file, name, home string) (cloudEntry, error) {
	folders := []string{".", filepath.Join(home, "openstack"), "/etc/openstack"}
	var one cloudEntry
	file, err := firstFile(file, folders, "clouds")
	if err != nil {
		return one, err
	}
	if file == "" {
		return one, errors.New("is in none of the usual places; set clouds-file to its path")
	}
	entries, err := entriesOf(file, "clouds")
	if err != nil {
		return one, err
	}
	if name == "" && len(entries) == 1 {
		for only := range entries {
			name = only
		}
	}
	own, ok := entries[name]
	if !ok {
		return one, fmt.Errorf("file %s has no cloud %q; set cloud or OS_CLOUD to one of its entries", file, name)
	}
	var reference cloudEntry
	if err := yaml.Unmarshal(own, &reference); err != nil {
		return one, fmt.Errorf("file %s: %w", file, err)
	}
	layers := [][]byte{own}
	if profile := cmp.Or(reference.Profile, reference.Cloud); profile != "" {
		layers = append([][]byte{readEntry(file, folders, "clouds-public", "public-clouds", profile)}, layers...)
	}
	layers = append(layers, readEntry(file, folders, "secure", "clouds", name))
	for _, layer := range layers {
		if err := yaml.Unmarshal(layer, &one); err != nil {
			return one, fmt.Errorf("cloud %q: its entries cannot be put together", name)
		}
	}
	return one, nil
}

// firstFile returns the given file, or the first with that name in the folders, or "".
func firstFile(file string, folders []string, name string) (string, error) {
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("cannot be read: %w", err)
		}
		return file, nil
	}
	for _, folder := range folders {
		for _, ending := range []string{".yaml", ".yml"} {
			if path := filepath.Join(folder, name+ending); fileExists(path) {
				return path, nil
			}
		}
	}
	return "", nil
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// readEntry returns an entry of an optional file, next to the main file or in the usual places.
func readEntry(main string, folders []string, name, key, entry string) []byte {
	file, err := firstFile("", append([]string{filepath.Dir(main)}, folders...), name)
	if err != nil || file == "" {
		return nil
	}
	entries, err := entriesOf(file, key)
	if err != nil {
		return nil
	}
	return entries[entry]
}

// entriesOf returns the clouds of a file, each as YAML.
func entriesOf(file, key string) (map[string][]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	var raw map[string]map[string]any
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("file %s is not YAML with clouds in it", file)
	}
	entries := map[string][]byte{}
	for name, entry := range raw[key] {
		text, err := yaml.Marshal(entry)
		if err != nil {
			return nil, fmt.Errorf("file %s: cloud %q: %w", file, name, err)
		}
		entries[name] = text
	}
	return entries, nil
}
