package gcesim

import (
	"io"
	"net/http"
	"strings"
)

const metadataRoot = "/computeMetadata/v1/"

// serveMetadata is the metadata server of the controller's machine.
func (s *Sim) serveMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		return
	}
	w.Header().Set("Metadata-Flavor", "Google")
	text := map[string]string{
		"project/project-id":                    Project,
		"instance/zone":                         "projects/123456789/zones/" + zones[0],
		"instance/network-interfaces/0/network": "projects/123456789/networks/" + Network,
	}
	switch asked := strings.TrimPrefix(r.URL.Path, metadataRoot); {
	case asked == "instance/service-accounts/default/token":
		reply(w, http.StatusOK, map[string]any{"access_token": s.served, "expires_in": 3599, "token_type": "Bearer"})
	case text[asked] != "":
		w.Header().Set("Content-Type", "application/text")
		_, _ = io.WriteString(w, text[asked]) // the client may have disconnected
	default:
		http.NotFound(w, r)
	}
}
