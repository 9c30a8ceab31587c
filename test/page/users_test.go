package page

// password is the password of all test users.
const password = "pass word"

// users creates users with their roles, which can be empty, and enables access control, so that
// logging in is required. It also creates the role root. Other roles must already exist.
func (m *member) users(roles map[string]string) {
	m.Helper()
	m.call("/v3/auth/role/add", map[string]any{"name": "root"})
	roles["root"] = "root"
	for name, role := range roles {
		m.call("/v3/auth/user/add", map[string]any{"name": name, "password": password})
		if role != "" {
			m.call("/v3/auth/user/grant", map[string]any{"user": name, "role": role})
		}
	}
	m.call("/v3/auth/enable", nil)
}

// role creates a role with permission to write keys with a prefix.
func (m *member) role(name, prefix string) {
	m.Helper()
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	m.call("/v3/auth/role/add", map[string]any{"name": name})
	m.call("/v3/auth/role/grant", map[string]any{"name": name, "perm": map[string]any{
		"permType": "READWRITE", "key": b64(prefix), "range_end": b64(end),
	}})
}

// logIn logs in with a password in the Access view.
func (p *tab) logIn(user string) {
	p.Helper()
	p.view("Access")
	p.fill("input[name=user]", user)
	p.fill("input[name=password]", password)
	p.click("button", "Log in")
	p.until("a login", "document.querySelector('.me').textContent === "+quote(user))
}

// loggedOut waits until the page reports that no user is logged in.
func (p *tab) loggedOut() {
	p.Helper()
	p.until("no login", "document.querySelector('.me').textContent === 'not logged in'")
}

// useToken logs in with a user's token in the Access view.
func (p *tab) useToken(token, who string) {
	p.Helper()
	p.view("Access")
	p.fill("input[name=token]", token)
	p.click("button", "Use token")
	p.until("a login", "document.querySelector('.me').textContent === "+quote(who))
}

// fact waits until the page shows a value for a label.
func (p *tab) fact(what, want string) {
	p.Helper()
	p.until(what, "[...document.querySelectorAll('dt')].find((e) => e.textContent === "+
		quote(what)+").nextSibling.textContent === "+quote(want))
}

// kept fails the test if the browser stores anything for the page's site other than the tab's
// login.
func (p *tab) kept(login bool) {
	p.Helper()
	want := `[0,"",0]`
	if login {
		want = `[0,"",1]`
	}
	var kept string
	p.eval("JSON.stringify([localStorage.length, document.cookie, sessionStorage.length])", &kept)
	if kept != want {
		p.Errorf("the browser keeps %s, not %s", kept, want)
	}
}
