package vsphere

import (
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// nsxtConfig is the section nsxt of the cloud config, with the environment's values over it: where NSX-T is, and how to log in.
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
	// LBServiceID is the load balancer service to use, which is then neither made nor deleted.
	LBServiceID string
	// Tier1GatewayPath is the path of the gateway that a load balancer service is attached to.
	Tier1GatewayPath string
	// SNATDisabled makes new pools with LBSnatDisabled.
	SNATDisabled bool
	// Tags are further tags of every object, by scope; "owner" replaces the usual owner.
	Tags map[string]string
	// Class are the settings of the class "default", as far as the section has them.
	Class loadBalancerClass
	// Classes are the sections loadBalancerClass.<name>, as they are written: nothing is inherited yet.
	Classes map[string]loadBalancerClass
}

// loadBalancerClass is where addresses and application profiles of load balancers come from. A path wins over a name.
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
