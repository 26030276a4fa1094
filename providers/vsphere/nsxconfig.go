package vsphere

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// nsxtConfig is the section nsxt of the cloud config, overridden by the environment: the address of NSX-T, and the credential.
type nsxtConfig struct {
	// Host is the manager's host, with a port where it is not 443; "" means that there is no section.
	Host string
	User string
	// Password may be empty where SecretName is set.
	Password schema.Secret
	// RemoteAuth sends user and password as "Authorization: Remote" (VMware Identity Manager) instead of Basic.
	RemoteAuth bool
	// Insecure skips the verification of the certificate.
	Insecure bool
	// CAFile names a PEM file whose certificates replace the system's roots; several are separated by ":".
	CAFile string
	// ClientCertFile and ClientKeyFile name the TLS client certificate of a principal identity; no other credential is then sent.
	ClientCertFile, ClientKeyFile string
	// VMCAccessToken is a refresh token of VMware Cloud on AWS, to be exchanged at VMCAuthHost.
	VMCAccessToken schema.Secret
	VMCAuthHost    string
	// SecretName and SecretNamespace name the Secret with the keys username and password; it replaces user and password.
	SecretName, SecretNamespace string
}

// loadBalancerConfig is the section loadBalancer.
type loadBalancerConfig struct {
	// Enabled is set where any key of the section, or any class, is.
	Enabled bool
	// Size is SMALL, MEDIUM, LARGE, XLARGE or DLB: that of load balancer services that are made.
	Size string
	// LBServiceID is an existing load balancer service to use, which is neither created nor deleted.
	LBServiceID string
	// Tier1GatewayPath is the path of the gateway that a load balancer service is attached to.
	Tier1GatewayPath string
	// SNATDisabled creates new pools with LBSnatDisabled.
	SNATDisabled bool
	// Tags are further tags of every object, by scope; "owner" replaces the usual owner.
	Tags map[string]string
	// Class holds the settings of the class "default" in the section.
	Class loadBalancerClass
	// Classes are the sections loadBalancerClass.<name> as written, before inheritance.
	Classes map[string]loadBalancerClass
}

// loadBalancerClass is the source of load balancers' addresses and application profiles. A path overrides a name.
type loadBalancerClass struct {
	IPPoolName, IPPoolID                 string
	TCPAppProfileName, TCPAppProfilePath string
	UDPAppProfileName, UDPAppProfilePath string
}

// routeConfig is the section route.
type routeConfig struct {
	// RouterPath is the policy path of the tier-1 gateway with the routes, such as /infra/tier-1s/t1; "" means no routes.
	RouterPath string
}

// loadBalancerSections completes the section loadBalancer and the classes, and reports missing keys.
func (c *Config) loadBalancerSections(f file) error {
	l := &c.LoadBalancer
	l.Classes = map[string]loadBalancerClass{}
	for name, keys := range f.classes {
		l.Classes[name] = loadBalancerClass{
			IPPoolName: keys["ipPoolName"], IPPoolID: keys["ipPoolId"],
			TCPAppProfileName: keys["tcpAppProfileName"], TCPAppProfilePath: keys["tcpAppProfilePath"],
			UDPAppProfileName: keys["udpAppProfileName"], UDPAppProfilePath: keys["udpAppProfilePath"],
		}
	}
	var problems []error
	if c.raw.Tags != "" {
		if err := json.Unmarshal([]byte(c.raw.Tags), &l.Tags); err != nil {
			problems = append(problems, problem("loadBalancer.tags", "is not a set of scopes with their tags, as JSON in the INI form"))
		}
	}
	l.Enabled = cmp.Or(l.Size, l.LBServiceID, l.Class.IPPoolID, l.Class.IPPoolName, l.Tier1GatewayPath) != "" || len(l.Classes) > 0
	if l.Enabled {
		problems = append(problems, l.check())
	}
	return errors.Join(problems...)
}

// defaultClass is the class of Services without one.
const defaultClass = "default"

// check reports missing keys of the section.
func (l loadBalancerConfig) check() error {
	var problems []error
	report := func(bad bool, key, reason string) {
		if bad {
			problems = append(problems, problem("loadBalancer."+key, reason))
		}
	}
	own := l.Classes[defaultClass]
	report(l.Size == "", "size", "is required and is not set; use one of "+strings.Join(sizes, ", "))
	report(l.LBServiceID == "" && l.Tier1GatewayPath == "", "lbServiceId", "is not set, and neither is tier1GatewayPath; set one of them")
	report(l.Class.IPPoolID != "" && l.Class.IPPoolName != "", "ipPoolName", "is set beside ipPoolID; keep one")
	report(cmp.Or(l.Class.IPPoolID, l.Class.IPPoolName, own.IPPoolID, own.IPPoolName) == "", "ipPoolName",
		"the default class has no pool: set ipPoolName or ipPoolID, here or in the class "+defaultClass)
	report(cmp.Or(l.Class.TCPAppProfileName, l.Class.TCPAppProfilePath, own.TCPAppProfileName, own.TCPAppProfilePath) == "",
		"tcpAppProfileName", "is not set, and neither is tcpAppProfilePath; set one of them")
	report(cmp.Or(l.Class.UDPAppProfileName, l.Class.UDPAppProfilePath, own.UDPAppProfileName, own.UDPAppProfilePath) == "",
		"udpAppProfileName", "is not set, and neither is udpAppProfilePath; set one of them")
	return errors.Join(problems...)
}

// isConfigured reports whether there is a section.
func (n nsxtConfig) isConfigured() bool {
	return n.Host != "" || n.User != "" || !n.Password.IsZero() || n.SecretName != "" || n.ClientCertFile != "" || !n.VMCAccessToken.IsZero()
}

// check reports missing keys of the section nsxt; needed is set if NSX-T is used.
func (n nsxtConfig) check(needed bool) error {
	if !needed && !n.isConfigured() {
		return nil
	}
	var problems []error
	report := func(bad bool, key, reason string) {
		if bad {
			problems = append(problems, blameMissing("nsxt."+key, reason))
		}
	}
	report(n.Host == "", "host", "is required for load balancers and routes; name the host of the NSX-T manager")
	if !n.VMCAccessToken.IsZero() && n.VMCAuthHost == "" {
		problems = append(problems, problem("nsxt.vmcAuthHost", "is required with vmcAccessToken"))
	}
	report(n.User != "" && n.Password.IsZero(), "password", "is required with user")
	report(n.ClientKeyFile != "" && n.ClientCertFile == "", "clientAuthCertFile", "is required with clientAuthKeyFile")
	report(n.ClientCertFile != "" && n.ClientKeyFile == "", "clientAuthKeyFile", "is required with clientAuthCertFile")
	report(n.SecretName != "" && n.SecretNamespace == "", "secretNamespace", "is required with secretName")
	report(n.SecretNamespace != "" && n.SecretName == "", "secretName", "is required with secretNamespace")
	report(n.User == "" && n.VMCAccessToken.IsZero() && n.ClientCertFile == "" && n.SecretName == "", "user",
		"is required where there is neither a vmcAccessToken, a clientAuthCertFile nor a secretName")
	return errors.Join(problems...)
}
