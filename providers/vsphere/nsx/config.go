package nsx

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// SectionClass begins the names of the sections of classes.
const SectionClass = "loadBalancerClass"

// ClassKeys are the keys of a section loadBalancerClass.<name>.
func ClassKeys() []string {
	return []string{"ipPoolName", "ipPoolId", "tcpAppProfileName", "tcpAppProfilePath", "udpAppProfileName", "udpAppProfilePath"}
}

// Sizes are those of load balancer services.
func Sizes() []string { return []string{"DLB", "LARGE", "MEDIUM", "SMALL", "XLARGE"} }

// Config holds the sections of the cloud config about NSX.
type Config struct {
	NSXT         managerConfig
	LoadBalancer loadBalancerConfig
	Route        routeConfig
}

// managerConfig is the section nsxt of the cloud config, overridden by the environment: the address of NSX-T, and the credential.
type managerConfig struct {
	// Host is the manager's host, with a port unless that is 443.
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

// AddClasses adds what the table of options does not hold: the sections of classes by name, with their keys, and further tags as JSON.
func (c *Config) AddClasses(classes map[string]map[string]string, tags string) error {
	l := &c.LoadBalancer
	l.Classes = map[string]loadBalancerClass{}
	for name, keys := range classes {
		l.Classes[name] = loadBalancerClass{
			IPPoolName: keys["ipPoolName"], IPPoolID: keys["ipPoolId"],
			TCPAppProfileName: keys["tcpAppProfileName"], TCPAppProfilePath: keys["tcpAppProfilePath"],
			UDPAppProfileName: keys["udpAppProfileName"], UDPAppProfilePath: keys["udpAppProfilePath"],
		}
	}
	l.Enabled = cmp.Or(l.Size, l.LBServiceID, l.Class.IPPoolID, l.Class.IPPoolName, l.Tier1GatewayPath) != "" || len(l.Classes) > 0
	if tags != "" && json.Unmarshal([]byte(tags), &l.Tags) != nil {
		return schema.BlameKey("loadBalancer.tags", "", "is not a set of scopes with their tags, as JSON in the INI form")
	}
	return nil
}

// Check reports faults of the sections, all at once.
func (c *Config) Check(allowInsecure bool) error {
	var found faults
	if c.LoadBalancer.Enabled {
		found.addMissing(c.LoadBalancer)
	}
	if c.LoadBalancer.Enabled || c.Route.RouterPath != "" || c.NSXT.isConfigured() {
		found.addMissingAccess(c.NSXT)
	}
	found.addWrong(*c, allowInsecure)
	return errors.Join(found...)
}

// faults collects the problems of the sections.
type faults []error

// addIf adds the fault of a key on a condition.
func (f *faults) addIf(wrong bool, key, reason string) {
	if wrong {
		*f = append(*f, schema.BlameKey(key, "", reason))
	}
}

// defaultClass is the class of Services without one.
const defaultClass = "default"

// classes returns the effective classes: a class without its own pool or profiles inherits the section's; profiles of the class default
// come before those. A pool is inherited as a whole, so that a class may name its pool where the section has an ID.
func (l loadBalancerConfig) classes() map[string]loadBalancerClass {
	all := map[string]loadBalancerClass{}
	base := l.Classes[defaultClass].inherit(l.Class)
	for name, class := range l.Classes {
		inherited := l.Class
		inherited.TCPAppProfileName, inherited.TCPAppProfilePath = base.TCPAppProfileName, base.TCPAppProfilePath
		inherited.UDPAppProfileName, inherited.UDPAppProfilePath = base.UDPAppProfileName, base.UDPAppProfilePath
		all[name] = class.inherit(inherited)
	}
	all[defaultClass] = base
	return all
}

func (c loadBalancerClass) inherit(from loadBalancerClass) loadBalancerClass {
	if c.IPPoolID == "" && c.IPPoolName == "" {
		c.IPPoolID, c.IPPoolName = from.IPPoolID, from.IPPoolName
	}
	if c.TCPAppProfilePath == "" && c.TCPAppProfileName == "" {
		c.TCPAppProfilePath, c.TCPAppProfileName = from.TCPAppProfilePath, from.TCPAppProfileName
	}
	if c.UDPAppProfilePath == "" && c.UDPAppProfileName == "" {
		c.UDPAppProfilePath, c.UDPAppProfileName = from.UDPAppProfilePath, from.UDPAppProfileName
	}
	return c
}

// tier1Prefix begins the policy path of a tier-1 gateway.
const tier1Prefix = "/infra/tier-1s/"

// tier1 returns the ID of the gateway for routes: the last part of its path. Any other path is refused, because its last part would be
// taken for a tier-1 gateway that does not exist.
func (c routeConfig) tier1() (string, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(c.RouterPath, tier1Prefix), "/")
	if id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("%q is not the path of a tier-1 gateway; write %s<id>", c.RouterPath, tier1Prefix)
	}
	return id, nil
}

// addMissing adds missing keys of the section loadBalancer.
func (f *faults) addMissing(l loadBalancerConfig) {
	report := func(missing bool, key, reason string) { f.addIf(missing, "loadBalancer."+key, reason) }
	base := l.classes()[defaultClass]
	report(l.Size == "", "size", "is required and is not set; use one of "+strings.Join(Sizes(), ", "))
	report(l.LBServiceID == "" && l.Tier1GatewayPath == "", "lbServiceId", "is not set, and neither is tier1GatewayPath; set one of them")
	report(l.Class.IPPoolID != "" && l.Class.IPPoolName != "", "ipPoolName", "is set beside ipPoolID; keep one")
	report(base.IPPoolID == "" && base.IPPoolName == "", "ipPoolName",
		"the default class has no pool: set ipPoolName or ipPoolID, here or in the class "+defaultClass)
	report(base.TCPAppProfileName == "" && base.TCPAppProfilePath == "",
		"tcpAppProfileName", "is not set, and neither is tcpAppProfilePath; set one of them")
	report(base.UDPAppProfileName == "" && base.UDPAppProfilePath == "",
		"udpAppProfileName", "is not set, and neither is udpAppProfilePath; set one of them")
}

// isConfigured reports whether there is a section.
func (n managerConfig) isConfigured() bool {
	return n.Host != "" || n.User != "" || !n.Password.IsZero() || n.SecretName != "" || n.ClientCertFile != "" || !n.VMCAccessToken.IsZero()
}

// addMissingAccess adds missing keys of the section nsxt, whose values may also come from the environment.
func (f *faults) addMissingAccess(n managerConfig) {
	report := func(missing bool, key, reason string) {
		if missing {
			*f = append(*f, &schema.Problem{Place: "key nsxt." + key + " of the cloud config", Reason: reason})
		}
	}
	report(n.Host == "", "host", "is required for load balancers and routes; name the host of the NSX-T manager")
	f.addIf(!n.VMCAccessToken.IsZero() && n.VMCAuthHost == "", "nsxt.vmcAuthHost", "is required with vmcAccessToken")
	report(n.User != "" && n.Password.IsZero(), "password", "is required with user")
	report(n.ClientKeyFile != "" && n.ClientCertFile == "", "clientAuthCertFile", "is required with clientAuthKeyFile")
	report(n.ClientCertFile != "" && n.ClientKeyFile == "", "clientAuthKeyFile", "is required with clientAuthCertFile")
	report(n.SecretName != "" && n.SecretNamespace == "", "secretNamespace", "is required with secretName")
	report(n.SecretNamespace != "" && n.SecretName == "", "secretName", "is required with secretNamespace")
	report(n.User == "" && n.VMCAccessToken.IsZero() && n.ClientCertFile == "" && n.SecretName == "", "user",
		"is required where there is neither a vmcAccessToken, a clientAuthCertFile nor a secretName")
}

// addWrong adds faults besides missing keys.
func (f *faults) addWrong(c Config, allowInsecure bool) {
	report := func(key string, err error) {
		if err != nil {
			f.addIf(true, key, err.Error())
		}
	}
	if c.Route.RouterPath != "" {
		_, err := c.Route.tier1()
		report("route.routerPath", err)
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(c.NSXT.Host, "http://"), "https://")
	f.addIf(strings.ContainsAny(bare, "/@? "), "nsxt.host", "is not the name or the address of a host")
	report("nsxt.host", schema.InsecureURL(c.NSXT.Host, allowInsecure))
	report("nsxt.vmcAuthHost", schema.InsecureURL(c.NSXT.VMCAuthHost, allowInsecure))
	l := c.LoadBalancer
	if !l.Enabled {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.Classes)) {
		f.addIf(l.Classes[name].IPPoolID != "" && l.Classes[name].IPPoolName != "", SectionClass+"."+name+".ipPoolName", "is set beside ipPoolID; keep one")
	}
	room := nsxlimits.Tags.Max - ownTags
	f.addIf(len(l.Tags) > room, "loadBalancer.tags", fmt.Sprintf("has more than %d tags, which is all that NSX has room for", room))
	for _, scope := range slices.Sorted(maps.Keys(l.Tags)) {
		f.addIf(scope == "" || nsxlimits.Scope.CheckText(scope) != nil || nsxlimits.Tag.CheckText(l.Tags[scope]) != nil, "loadBalancer.tags", fmt.Sprintf(
			"has the scope %q: a scope has 1 to %d characters, and a tag at most %d", scope, nsxlimits.Scope.Max, nsxlimits.Tag.Max))
	}
}
