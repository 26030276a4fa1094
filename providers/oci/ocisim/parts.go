package ocisim

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// This file has the parts of load balancers that Services may ask for: certificates, rule sets and TLS.

const certificateName = `^[A-Za-z0-9_-]{1,255}$`

func certificateShape() shape {
	return shape{map[string]field{
		"certificateName": text(true, certificateName), "publicCertificate": {kind: "string"}, "privateKey": {kind: "string"},
		"caCertificate": {kind: "string"}, "passphrase": {kind: "string"},
	}}
}

// judgeCertificate is about the certificate itself.
func judgeCertificate(d document) string {
	public, _ := d["publicCertificate"].(string)
	private, _ := d["privateKey"].(string)
	if _, err := tls.X509KeyPair([]byte(public), []byte(private)); err != nil {
		return "Invalid certificate: " + err.Error()
	}
	if ca, _ := d["caCertificate"].(string); ca != "" {
		block, _ := pem.Decode([]byte(ca))
		if block == nil {
			return "caCertificate is no PEM"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "caCertificate is no certificate"
		}
	}
	return ""
}

// withoutKey removes the secret parts of a certificate, which the cloud never returns.
func withoutKey(d document) document {
	d["privateKey"], d["passphrase"] = nil, nil
	delete(d, "privateKey")
	delete(d, "passphrase")
	return d
}

func tlsShape() shape {
	return shape{map[string]field{
		"certificateName": text(false, certificateName), "verifyDepth": number(false, 0, 10), "verifyPeerCertificate": flag(),
		"cipherSuiteName": choice(false, "oci-default-ssl-cipher-suite-v1", "oci-modern-ssl-cipher-suite-v1", "oci-compatible-ssl-cipher-suite-v1",
			"oci-wider-compatible-ssl-cipher-suite-v1", "oci-default-http2-ssl-cipher-suite-v1"),
		"protocols":             {kind: "list", each: &field{kind: "string", choices: []string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}}},
		"serverOrderPreference": choice(false, "ENABLED", "DISABLED"), "hasSessionResumption": flag(),
		"certificateIds": texts(), "trustedCertificateAuthorityIds": texts(),
	}}
}

// fillTLS fills in what the cloud shows of a TLS configuration that nobody set.
func fillTLS(owner document) {
	ssl := part(owner, "sslConfiguration")
	if ssl == nil {
		return
	}
	for name, v := range map[string]any{
		"cipherSuiteName": "oci-default-ssl-cipher-suite-v1", "protocols": []any{"TLSv1.2"}, "serverOrderPreference": "ENABLED",
		"hasSessionResumption": true, "verifyDepth": 1.0, "verifyPeerCertificate": false,
	} {
		if ssl[name] == nil {
			ssl[name] = v
		}
	}
}

// items are the shapes of the rules of rule sets, by their action.
func items() map[string]shape {
	header := text(true, `^[A-Za-z][A-Za-z0-9-]*$`)
	value := text(true, `^[ -~]+$`)
	conditions := field{kind: "list", of: &shape{map[string]field{
		"attributeName": choice(true, "PATH", "SOURCE_IP_ADDRESS", "SOURCE_VCN_ID"), "attributeValue": value,
		"operator": choice(false, "EXACT_MATCH", "FORCE_LONGEST_PREFIX_MATCH", "PREFIX_MATCH", "SUFFIX_MATCH"),
	}}}
	uri := shape{map[string]field{
		"protocol": text(false, `^(?:https?|\{protocol\})$`), "host": value, "path": value, "query": value, "port": number(false, 1, maxPort),
	}}
	uri.fields["host"], uri.fields["path"], uri.fields["query"] = text(false, ""), text(false, ""), text(false, "")
	all := map[string]shape{
		"ADD_HTTP_REQUEST_HEADER": {map[string]field{"header": header, "value": value}}, "REMOVE_HTTP_REQUEST_HEADER": {map[string]field{"header": header}},
		"ADD_HTTP_RESPONSE_HEADER": {map[string]field{"header": header, "value": value}}, "REMOVE_HTTP_RESPONSE_HEADER": {map[string]field{"header": header}},
		"ALLOW":    {map[string]field{"conditions": conditions, "description": text(false, "")}},
		"REDIRECT": {map[string]field{"conditions": conditions, "redirectUri": {kind: "object", of: &uri}, "responseCode": number(false, 301, 308)}},
	}
	for action, s := range all {
		s.fields["action"] = choice(true, action)
	}
	return all
}

func ruleSetShape() shape {
	return shape{map[string]field{"items": {kind: "list", must: true, atLeast: 1}}}
}

// judgeItems is about the rules of a rule set.
func judgeItems(d document) string {
	for n, v := range list(d["items"]) {
		item, _ := v.(document)
		action, _ := item["action"].(string)
		form, known := items()[action]
		if !known {
			return fmt.Sprintf("items[%d].action has an illegal value %v", n, item["action"])
		}
		if why := form.judge(fmt.Sprintf("items[%d]", n), item); why != "" {
			return why
		}
	}
	return ""
}

// fillRuleSet fills in what the cloud shows of a rule set that nobody set.
func fillRuleSet(d document, name string) {
	d["name"] = name
	for _, v := range list(d["items"]) {
		if item, _ := v.(document); item["action"] == "REDIRECT" && item["responseCode"] == nil {
			item["responseCode"] = 302.0
		}
	}
}

// judgeRefs is about the parts that a listener or a backend set refers to.
func judgeRefs(whole, owner document) string {
	if ssl := part(owner, "sslConfiguration"); ssl != nil {
		if why := tlsShape().judge("sslConfiguration", ssl); why != "" {
			return why
		}
		if name, _ := ssl["certificateName"].(string); name != "" && part(whole, "certificates")[name] == nil {
			return "there is no certificate " + name
		}
	}
	if owner["protocol"] == "GRPC" && part(owner, "sslConfiguration")["cipherSuiteName"] != "oci-default-http2-ssl-cipher-suite-v1" {
		return "GRPC needs a cipher suite of HTTP2"
	}
	for _, name := range list(owner["ruleSetNames"]) {
		if part(whole, "ruleSets")[fmt.Sprint(name)] == nil {
			return fmt.Sprintf("there is no rule set %v", name)
		}
	}
	return ""
}

// referredBy returns the part that refers to a certificate or a rule set; "" if none does.
func referredBy(whole document, kind, name string) string {
	for _, owners := range []string{"listeners", "backendSets"} {
		for owner, v := range part(whole, owners) {
			d := v.(document) //nolint:forcetypeassert // checked when it was written
			if kind == "certificates" && part(d, "sslConfiguration")["certificateName"] == name {
				return owner
			}
			for _, set := range list(d["ruleSetNames"]) {
				if kind == "ruleSets" && set == name {
					return owner
				}
			}
		}
	}
	return ""
}
