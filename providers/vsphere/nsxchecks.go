package vsphere

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// defaultClass is the class of a Service that names none. It always exists.
const defaultClass = "default"

// lbSizes are those of a load balancer service.
var lbSizes = []string{"DLB", "LARGE", "MEDIUM", "SMALL", "XLARGE"}

// configured reports whether the section has anything in it.
func (c nsxtConfig) configured() bool {
	return cmp.Or(c.Host, c.User, c.CAFile, c.ClientCertFile, c.ClientKeyFile, c.VMCAuthHost, c.SecretName, c.SecretNamespace) != "" ||
		!c.VMCAccessToken.IsZero() || !c.Password.IsZero()
}

// validate reports what is wrong with the section. The messages are those of the cloud's own controller.
func (c nsxtConfig) validate() error {
	var problems []error
	say := func(text string) { problems = append(problems, fmt.Errorf("section nsxt: %s", text)) }
	switch {
	case !c.VMCAccessToken.IsZero():
		if c.VMCAuthHost == "" {
			say("vmc auth host must be provided if auth token is provided")
		}
	case c.User != "":
		if c.Password.IsZero() {
			say("password is empty")
		}
	case c.ClientKeyFile != "" && c.ClientCertFile == "":
		say("client cert file is required if client key file is provided")
	case c.ClientCertFile != "" && c.ClientKeyFile == "":
		say("client key file is required if client cert file is provided")
	case c.SecretName != "" && c.SecretNamespace == "":
		say("secret namespace is required if secret name is provided")
	case c.SecretNamespace != "" && c.SecretName == "":
		say("secret name is required if secret namespace is provided")
	case c.ClientCertFile == "" && c.SecretName == "":
		say("user or vmc access token or client cert file must be set")
	}
	if c.Host == "" {
		say("host is empty")
	}
	return errors.Join(problems...)
}

// validate reports all that is wrong with the section, and with the classes that it makes.
func (c loadBalancerConfig) validate() error {
	var problems []error
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("section loadBalancer: "+format, args...))
	}
	if !slices.Contains(lbSizes, c.Size) {
		say("load balancer size is invalid. Valid values are: %s", strings.Join(lbSizes, ","))
	}
	if c.LBServiceID == "" && c.Tier1GatewayPath == "" {
		say("either load balancer service id or T1 gateway path required")
	}
	for _, name := range slices.Sorted(maps.Keys(c.classes())) {
		if err := c.classes()[name].validate(); err != nil {
			say("class %s: %w", name, err)
		}
	}
	if len(c.Tags) > maxTags-ownTags {
		say("%d tags are more than NSX has room for beside those of this program, which is %d", len(c.Tags), maxTags-ownTags)
	}
	for scope, tag := range c.Tags {
		if len(scope) > maxScope || len(tag) > maxTag {
			say("tag %q: a scope has at most %d characters, and a tag %d", scope, maxScope, maxTag)
		}
	}
	return errors.Join(problems...)
}

// classes are the classes as they count: pool and profiles of the section where a class has none of its own, and profiles of
// the class default before those. A pool is inherited as a whole, so that a class may name its pool where the section has an ID.
func (c loadBalancerConfig) classes() map[string]loadBalancerClass {
	all := map[string]loadBalancerClass{}
	base := c.Classes[defaultClass].inherit(c.Class)
	for name, class := range c.Classes {
		inherited := c.Class
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

// validate judges a class that has inherited what it lacks.
func (c loadBalancerClass) validate() error {
	var problems []error
	switch {
	case c.IPPoolID != "" && c.IPPoolName != "":
		problems = append(problems, errors.New("either load balancer ipPoolName or ipPoolID can be set"))
	case c.IPPoolID == "" && c.IPPoolName == "":
		problems = append(problems, errors.New("ipPoolName and ipPoolID is empty"))
	}
	if c.TCPAppProfilePath == "" && c.TCPAppProfileName == "" {
		problems = append(problems, errors.New("either load balancer TCP application profile name or path required"))
	}
	if c.UDPAppProfilePath == "" && c.UDPAppProfileName == "" {
		problems = append(problems, errors.New("either load balancer UDP application profile name or path required"))
	}
	return errors.Join(problems...)
}

// tier1Prefix begins the policy path of a tier-1 gateway.
const tier1Prefix = "/infra/tier-1s/"

// tier1 is the ID of the gateway that gets the routes: the last part of its path. A path of anything else is refused, for its last
// part would be taken for a tier-1 gateway that does not exist.
func (c routeConfig) tier1() (string, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(c.RouterPath, tier1Prefix), "/")
	switch {
	case c.RouterPath == "":
		return "", errors.New("section route: router path is required")
	case id == "" || strings.Contains(id, "/"):
		return "", fmt.Errorf("section route: routerPath %q is not the path of a tier-1 gateway; write %s<id>", c.RouterPath, tier1Prefix)
	}
	return id, nil
}

// checkNSX reports all that is wrong with the sections nsxt, loadBalancer and route together. A section nsxt that nothing uses is not
// judged.
func checkNSX(c Config) error {
	var problems []error
	if c.LoadBalancer.Enabled {
		problems = append(problems, c.LoadBalancer.validate())
	}
	if c.Route.RouterPath != "" {
		_, err := c.Route.tier1()
		problems = append(problems, err)
	}
	switch {
	case !c.LoadBalancer.Enabled && c.Route.RouterPath == "":
	case !c.NSXT.configured():
		problems = append(problems, errors.New("section nsxt is missing: load balancers and routes are made by NSX; add it with the manager's host and credentials"))
	default:
		problems = append(problems, c.NSXT.validate())
	}
	return errors.Join(problems...)
}
