package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are how commands are called, one call a line. Commands whose examples need more words
// have them with their help.
var examples = map[string]string{
	"alarm disarm":       "leasehold alarm disarm",
	"alarm list":         "leasehold alarm list",
	"auth bindings":      "leasehold auth bindings --cluster --user root",
	"auth disable":       "leasehold auth disable --user root",
	"auth enable":        "leasehold auth enable --user root",
	"auth limits":        "leasehold auth limits --leases 1000 --rate 500\nleasehold auth limits",
	"auth status":        "leasehold auth status -w json",
	"auth whoami":        "leasehold auth whoami --user alice",
	"compaction":         "leasehold compaction 1200\nleasehold compaction --physical 1200",
	"defrag":             "leasehold defrag --cluster",
	"del":                "leasehold del config/a\nleasehold del config/ --prefix --prev-kv",
	"downgrade cancel":   "leasehold downgrade cancel",
	"downgrade enable":   "leasehold downgrade validate 0.1\nleasehold downgrade enable 0.1",
	"downgrade validate": "leasehold downgrade validate 0.1",
	"endpoint hashkv":    "leasehold endpoint hashkv --cluster -w table",
	"endpoint health":    "leasehold endpoint health --endpoints a:2379,b:2379",
	"endpoint status":    "leasehold endpoint status --cluster -w table",
	"get": "leasehold get config/a\nleasehold get config/ --prefix --keys-only\n" +
		"leasehold get config/a --rev 1200 -w json",
	"init-access":       "leasehold init-access --app shop --prefix shop/",
	"lease attach":      "leasehold lease attach worker-7 config/a config/b",
	"lease check-token": "leasehold lease check-token worker-7 42 && echo still the holder",
	"lease describe": "leasehold lease describe worker-7\n" +
		"leasehold lease describe 694d77aa9e38260f -w json",
	"lease detach": "leasehold lease detach worker-7 config/a",
	"lease grant": "leasehold lease grant 30\n" +
		"leasehold lease grant 1500ms --name worker-7 --owner host-a --label zone=1",
	"lease handover": "leasehold lease handover worker-7 --owner host-b",
	"lease keep-alive": "leasehold lease keep-alive worker-7\n" +
		"leasehold lease keep-alive --once worker-7 worker-8",
	"lease list":   "leasehold lease list\nleasehold lease list --long --prefix worker- -w table",
	"lease resume": "leasehold lease resume worker-7 --secret 5b1c9d",
	"lease revoke": "leasehold lease revoke 694d77aa9e38260f\n" +
		"leasehold lease revoke worker-7 worker-8",
	"lease timetolive": "leasehold lease timetolive worker-7 --keys",
	"lease ttl":        "leasehold lease ttl worker-7 2m",
	"lease watch":      "leasehold lease watch --prefix worker- --expiring-within 3s",
	"lock":             "leasehold lock backup\nleasehold lock backup ./backup.sh",
	"member add":       "leasehold member add m3 --peer-urls http://host3:2380 --learner",
	"member list":      "leasehold member list -w table",
	"member promote":   "leasehold member promote 8211f1d0f64f3269",
	"member remove":    "leasehold member remove 8211f1d0f64f3269",
	"member update":    "leasehold member update 8211f1d0f64f3269 --peer-urls http://host3:2380",
	"group list":       "leasehold group list web",
	"group watch":      "leasehold group watch web",
	"move-leader":      "leasehold move-leader 8211f1d0f64f3269",
	"group forget":     "leasehold group forget db host-3",
	"group nodes":      "leasehold group nodes db --watch",
	"group switch":     "leasehold group switch db host-2 --wait 1m",
	"pool list":        "leasehold pool list ports",
	"put": "leasehold put config/a 1\nleasehold put --lease worker-7 config/a 1\n" +
		"leasehold put --ttl 10s seen/host-a now",
	"queue claim":   "leasehold queue claim mail -- ./send.sh",
	"queue dead":    "leasehold queue dead mail",
	"queue discard": "leasehold queue discard mail --all",
	"queue list":    "leasehold queue list mail",
	"queue push": "leasehold queue push mail to-alice\n" +
		"leasehold queue push mail --delay 1m < letter",
	"queue requeue":          "leasehold queue requeue mail --all",
	"role add":               "leasehold role add reader",
	"role delete":            "leasehold role delete reader",
	"role get":               "leasehold role get reader",
	"role grant-names":       "leasehold role grant-names reader see --prefix worker-",
	"role grant-permission":  "leasehold role grant-permission reader read config/ --prefix",
	"role limits":            "leasehold role limits app --leases 100 --bytes 1000000",
	"role list":              "leasehold role list",
	"role list-names":        "leasehold role list-names reader",
	"role revoke-names":      "leasehold role revoke-names reader --prefix worker-",
	"role revoke-permission": "leasehold role revoke-permission reader config/ --prefix",
	"top":                    "leasehold top --prefix jobs/\nleasehold top --once --rows 50",
	"txn":                    "leasehold txn < moves.txt\nleasehold txn -i",
	"user add":               "leasehold user add alice\nleasehold user add robot --no-password",
	"user delete":            "leasehold user delete alice",
	"user get":               "leasehold user get alice --detail",
	"user grant-role":        "leasehold user grant-role alice reader",
	"user limits":            "leasehold user limits alice --bytes none",
	"user list":              "leasehold user list",
	"user passwd":            "leasehold user passwd alice",
	"user revoke-role":       "leasehold user revoke-role alice reader",
	"version":                "leasehold version",
	"watch": "leasehold watch config/ --prefix --why\nleasehold watch config/a --rev 1200\n" +
		"leasehold watch config/ --prefix -- ./reload.sh",
}

// equip gives the commands below cmd their examples, and shells what the arguments may be. Each
// call of the program does so, and to seek commands by their names would take longer.
func (a *app) equip(cmd *cobra.Command, path string) {
	for _, sub := range cmd.Commands() {
		at := strings.TrimSpace(path + " " + sub.Name())
		if text, ok := examples[at]; ok {
			sub.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		if lists, ok := liveWords[at]; ok {
			sub.ValidArgsFunction = a.completeLive(lists)
		}
		a.equip(sub, at)
	}
}
