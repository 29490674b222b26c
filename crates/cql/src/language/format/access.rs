//! Statements about roles and permissions.

use super::super::ast::{
    AccessList, ListRoles, ListedRoles, Password, PermissionChange, PermissionSet, Resource, RoleOptions, Statement,
};
use super::formatter::{Formatter, quote_identifier, quote_string};
use std::borrow::Cow;

impl Formatter<'_> {
    pub(super) fn access_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateRole(role) => {
                self.push("CREATE ROLE ");
                self.flag(role.if_not_exists, "IF NOT EXISTS ");
                self.role(&role.name);
                self.role_options(&role.options);
            }
            Statement::AlterRole(role) => {
                self.push("ALTER ROLE ");
                self.flag(role.if_exists, "IF EXISTS ");
                self.role(&role.name);
                self.role_options(&role.options);
            }
            Statement::DropRole(role) => {
                self.push("DROP ROLE ");
                self.flag(role.if_exists, "IF EXISTS ");
                self.role(&role.name);
            }
            Statement::ListRoles(list) => self.list_roles(list),
            Statement::GrantRole(change) => self.roles("GRANT ", &change.role, " TO ", &change.member),
            Statement::RevokeRole(change) => self.roles("REVOKE ", &change.role, " FROM ", &change.member),
            Statement::GrantPermissions(change) => self.permission_change("GRANT ", change, " TO "),
            Statement::RevokePermissions(change) => self.permission_change("REVOKE ", change, " FROM "),
            Statement::ListPermissions(list) => {
                self.push("LIST ");
                self.permissions(&list.permissions);
                if let Some(resource) = &list.resource {
                    self.push(" ON ");
                    self.resource(resource);
                }
                self.of_role(list.of.as_deref(), list.no_recursive);
            }
            Statement::AddIdentity(identity) => {
                self.push("ADD IDENTITY ");
                self.flag(identity.if_not_exists, "IF NOT EXISTS ");
                self.string(&identity.identity);
                self.push(" TO ROLE ");
                self.role(&identity.role);
            }
            Statement::DropIdentity(identity) => {
                self.push("DROP IDENTITY ");
                self.flag(identity.if_exists, "IF EXISTS ");
                self.string(&identity.identity);
            }
            // All others are written elsewhere.
            _ => {}
        }
    }

    /// The name of a role: a string where it is no plain identifier, since it may be anything.
    fn role(&mut self, name: &str) {
        match quote_identifier(name) {
            Cow::Borrowed(plain) => self.push(plain),
            Cow::Owned(_) => self.string(name),
        }
    }

    fn roles(&mut self, verb: &str, role: &str, preposition: &str, member: &str) {
        self.push(verb);
        self.role(role);
        self.push(preposition);
        self.role(member);
    }

    fn role_options(&mut self, options: &RoleOptions) {
        let mut parts = Vec::new();
        match &options.password {
            Some(Password::Clear(text)) => parts.push(std::format!("PASSWORD = {}", quote_string(text))),
            Some(Password::Hashed(text)) => parts.push(std::format!("HASHED PASSWORD = {}", quote_string(text))),
            Some(Password::Generated) => parts.push("GENERATED PASSWORD".to_owned()),
            None => {}
        }
        if let Some(superuser) = options.superuser {
            parts.push(std::format!("SUPERUSER = {superuser}"));
        }
        if let Some(login) = options.login {
            parts.push(std::format!("LOGIN = {login}"));
        }
        if let Some(custom) = &options.custom {
            let (map, _) = self.aside(|formatter| formatter.constant_map(custom));
            parts.push(std::format!("OPTIONS = {map}"));
        }
        if let Some(list) = &options.datacenters {
            parts.push(std::format!("ACCESS TO {}", access_list(list, "DATACENTERS")));
        }
        if let Some(list) = &options.cidrs {
            parts.push(std::format!("ACCESS FROM {}", access_list(list, "CIDRS")));
        }
        if !parts.is_empty() {
            self.push(" WITH ");
            self.push(&parts.join(" AND "));
        }
    }

    fn list_roles(&mut self, list: &ListRoles) {
        self.push(match list.kind {
            ListedRoles::Roles => "LIST ROLES",
            ListedRoles::Users => "LIST USERS",
            ListedRoles::Superusers => "LIST SUPERUSERS",
        });
        self.of_role(list.of.as_deref(), list.no_recursive);
    }

    fn of_role(&mut self, of: Option<&str>, no_recursive: bool) {
        if let Some(role) = of {
            self.push(" OF ");
            self.role(role);
        }
        self.flag(no_recursive, " NORECURSIVE");
    }

    fn permission_change(&mut self, verb: &str, change: &PermissionChange, preposition: &str) {
        self.push(verb);
        self.permissions(&change.permissions);
        self.push(" ON ");
        self.resource(&change.resource);
        self.push(preposition);
        self.role(&change.role);
    }

    fn permissions(&mut self, permissions: &PermissionSet) {
        match permissions {
            PermissionSet::All => self.push("ALL PERMISSIONS"),
            PermissionSet::Only(permissions) => {
                self.separated(permissions, ", ", |formatter, permission| formatter.push(permission.name()));
            }
        }
    }

    fn resource(&mut self, resource: &Resource) {
        match resource {
            Resource::AllKeyspaces => self.push("ALL KEYSPACES"),
            Resource::Keyspace(name) => {
                self.push("KEYSPACE ");
                self.name(name);
            }
            Resource::AllTables(keyspace) => {
                self.push("ALL TABLES IN KEYSPACE ");
                self.name(keyspace);
            }
            Resource::Table(name) => {
                self.push("TABLE ");
                self.qualified(name);
            }
            Resource::AllRoles => self.push("ALL ROLES"),
            Resource::Role(name) => {
                self.push("ROLE ");
                self.role(name);
            }
            Resource::AllFunctions => self.push("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(keyspace) => {
                self.push("ALL FUNCTIONS IN KEYSPACE ");
                self.name(keyspace);
            }
            Resource::Function(signature) => {
                self.push("FUNCTION ");
                self.function_signature(signature);
            }
            Resource::AllMbeans => self.push("ALL MBEANS"),
            Resource::Mbeans(pattern) => {
                self.push("MBEANS ");
                self.string(pattern);
            }
            Resource::Mbean(name) => {
                self.push("MBEAN ");
                self.string(name);
            }
        }
    }
}

/// `ALL DATACENTERS` or `DATACENTERS {'a', 'b'}`
fn access_list(list: &AccessList, of: &str) -> String {
    match list {
        AccessList::All => std::format!("ALL {of}"),
        AccessList::Only(names) => {
            let names: Vec<String> = names.iter().map(|name| quote_string(name)).collect();
            std::format!("{of} {{{}}}", names.join(", "))
        }
    }
}
