package digitaloceansim

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Certificate is a certificate as the API shows it.
type Certificate struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Type            string   `json:"type"`
	State           string   `json:"state"`
	NotAfter        string   `json:"not_after"`
	SHA1Fingerprint string   `json:"sha1_fingerprint"`
	CreatedAt       string   `json:"created_at"`
	DNSNames        []string `json:"dns_names"`
}

// AddCertificate adds a verified certificate of type custom or lets_encrypt and returns its ID.
func (s *Sim) AddCertificate(name, kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addCertificateLocked(name, kind)
}

func (s *Sim) addCertificateLocked(name, kind string) string {
	c := &Certificate{
		ID: s.uuid(), Name: name, Type: kind, State: "verified", NotAfter: "2027-01-01T00:00:00Z", CreatedAt: timestamp(),
		SHA1Fingerprint: "dfcc9f57d86bf58e321c2c6c31c7a971be244ac7", DNSNames: []string{"www.example.com"},
	}
	s.certificates[c.ID] = c
	return c.ID
}

// RenewCertificate does what Let's Encrypt's renewal does: a new ID under the same name, load balancers moved to it, the
// old certificate gone. It returns the new ID.
func (s *Sim) RenewCertificate(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.certificates[id]
	delete(s.certificates, id)
	renewed := s.addCertificateLocked(old.Name, old.Type)
	for _, lb := range s.loadBalancers {
		for i := range lb.ForwardingRules {
			if lb.ForwardingRules[i].CertificateID == id {
				lb.ForwardingRules[i].CertificateID = renewed
			}
		}
	}
	return renewed
}

func (s *Sim) listCertificates(r *http.Request) (int, any, error) {
	name := r.URL.Query().Get("name")
	match := []*Certificate{}
	for _, c := range sorted(s.certificates) {
		if name == "" || c.Name == name {
			match = append(match, c)
		}
	}
	return list(r, "certificates", match)
}

// createCertificate takes a certificate of one's own, or has Let's Encrypt issue one.
func (s *Sim) createCertificate(r *http.Request) (int, any, error) {
	var in struct {
		Name     string   `json:"name"`
		Type     string   `json:"type"`
		Key      string   `json:"private_key"`
		Leaf     string   `json:"leaf_certificate"`
		Chain    string   `json:"certificate_chain"`
		DNSNames []string `json:"dns_names"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	kind := first(in.Type, "custom")
	switch {
	case in.Name == "":
		return 0, nil, invalid("name is missing")
	case kind == "custom" && (in.Key == "" || in.Leaf == ""):
		return 0, nil, invalid("private_key and leaf_certificate are missing")
	case kind == "lets_encrypt" && len(in.DNSNames) == 0:
		return 0, nil, invalid("dns_names are missing")
	case kind != "custom" && kind != "lets_encrypt":
		return 0, nil, invalid("type %q is invalid", kind)
	}
	for _, c := range s.certificates {
		if c.Name == in.Name {
			return 0, nil, invalid("a certificate named %s exists", in.Name)
		}
	}
	id := s.addCertificateLocked(in.Name, kind)
	return http.StatusCreated, map[string]any{"certificate": s.certificates[id]}, nil
}

func (s *Sim) getCertificate(id string) (int, any, error) {
	c := s.certificates[id]
	if c == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, map[string]any{"certificate": c}, nil
}

var tagPattern = regexp.MustCompile(`^[a-zA-Z0-9_\-:]{1,255}$`)

// tagLocked returns the resources of a tag, which is made if there is none.
func (s *Sim) tagLocked(name string) map[string]bool {
	if s.tags[name] == nil {
		s.tags[name] = map[string]bool{}
	}
	return s.tags[name]
}

func tagView(name string, resources map[string]bool) map[string]any {
	droplets := 0
	for resource := range resources {
		if strings.HasPrefix(resource, "droplet:") {
			droplets++
		}
	}
	return map[string]any{"name": name, "resources": map[string]any{"count": len(resources), "droplets": map[string]int{"count": droplets}}}
}

func (s *Sim) createTag(r *http.Request) (int, any, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if !tagPattern.MatchString(in.Name) {
		return 0, nil, &apiError{http.StatusBadRequest, "tag name is invalid"}
	}
	return http.StatusCreated, map[string]any{"tag": tagView(in.Name, s.tagLocked(in.Name))}, nil
}

func (s *Sim) getTag(name string) (int, any, error) {
	resources, ok := s.tags[name]
	if !ok {
		return 0, nil, errNotFound
	}
	return http.StatusOK, map[string]any{"tag": tagView(name, resources)}, nil
}

func (s *Sim) tagResources(r *http.Request, name string) (int, any, error) {
	resources, ok := s.tags[name]
	if !ok {
		return 0, nil, errNotFound
	}
	var in struct {
		Resources []struct {
			ID   string `json:"resource_id"`
			Type string `json:"resource_type"`
		} `json:"resources"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	for _, resource := range in.Resources {
		if resource.Type == "load_balancer" && s.loadBalancers[resource.ID] == nil {
			return 0, nil, errNotFound
		}
	}
	for _, resource := range in.Resources {
		key := resource.Type + ":" + resource.ID
		if r.Method == http.MethodPost {
			resources[key] = true
		} else {
			delete(resources, key)
		}
		if lb := s.loadBalancers[resource.ID]; lb != nil && resource.Type == "load_balancer" {
			lb.Tags = slices.DeleteFunc(slices.Clone(lb.Tags), func(t string) bool { return t == name })
			if r.Method == http.MethodPost {
				lb.Tags = append(lb.Tags, name)
			}
		}
	}
	return http.StatusNoContent, nil, nil
}
