//! Roles, users, permissions and identities.
//!
//! Always true: the name of a role may be an identifier, folded to lower case, or a string or quoted name, kept as written.

use super::super::ast::{
    AccessList, AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, ListPermissions, ListRoles, ListedRoles,
    Password, Permission, PermissionChange, PermissionSet, Resource, RoleMembership, RoleOptions, Statement,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::{Parser, Result};

impl Parser<'_> {
    fn role_name(&mut self) -> Result<String> {
        if self.at_string() { self.string("role name") } else { self.identifier("role name") }
    }

    pub(super) fn create_role(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
    }

    pub(super) fn alter_role(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
    }

    /// `WITH option AND …` of a role, if it is next; an option may be given once.
    fn role_options(&mut self) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        if self.eat(Keyword::With) {
            self.and_separated(|parser| parser.role_option(&mut options))?;
        }
        Ok(options)
    }

    fn role_option(&mut self, options: &mut RoleOptions) -> Result<()> {
        let start = self.current;
        let repeated = match self.current.kind {
            Kind::Keyword(Keyword::Password | Keyword::Hashed | Keyword::Generated) => {
                let password = self.password_option()?;
                options.password.replace(password).is_some()
            }
            Kind::Keyword(Keyword::Options) => {
                self.bump();
                self.expect_symbol(Symbol::Equal)?;
                options.custom.replace(self.constant_map()?).is_some()
            }
            Kind::Keyword(Keyword::Superuser) => options.superuser.replace(self.boolean_option()?).is_some(),
            Kind::Keyword(Keyword::Login) => options.login.replace(self.boolean_option()?).is_some(),
            Kind::Keyword(Keyword::Access) => {
                self.bump();
                if self.eat(Keyword::To) {
                    options.datacenters.replace(self.access_list(Keyword::Datacenters)?).is_some()
                } else {
                    self.expect(Keyword::From)?;
                    options.cidrs.replace(self.access_list(Keyword::Cidrs)?).is_some()
                }
            }
            _ => return Err(self.unexpected("an option of a role")),
        };
        if repeated {
            Err(self.syntax_error(start, "an option of a role may be given once".to_owned()))
        } else {
            Ok(())
        }
    }

    fn password_option(&mut self) -> Result<Password> {
        if self.eat(Keyword::Generated) {
            self.expect(Keyword::Password)?;
            return Ok(Password::Generated);
        }
        let hashed = self.eat(Keyword::Hashed);
        self.expect(Keyword::Password)?;
        self.expect_symbol(Symbol::Equal)?;
        let text = self.string("a password in quotes")?;
        Ok(if hashed { Password::Hashed(text) } else { Password::Clear(text) })
    }

    /// The option at hand `= true` or `= false`
    fn boolean_option(&mut self) -> Result<bool> {
        self.bump();
        self.expect_symbol(Symbol::Equal)?;
        if self.eat(Keyword::True) {
            return Ok(true);
        }
        if self.eat(Keyword::False) {
            return Ok(false);
        }
        Err(self.unexpected("true or false"))
    }

    /// `ALL DATACENTERS` or `DATACENTERS {'a', …}`
    fn access_list(&mut self, of: Keyword) -> Result<AccessList> {
        if self.eat(Keyword::All) {
            self.expect(of)?;
            return Ok(AccessList::All);
        }
        self.expect(of)?;
        self.expect_symbol(Symbol::LeftBrace)?;
        let names = self.comma_separated(|parser| parser.string("a string"))?;
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(AccessList::Only(names))
    }

    pub(super) fn create_user(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let password = self.user_password()?;
        let superuser = Some(self.user_superuser().unwrap_or(false));
        let options = RoleOptions { password, superuser, login: Some(true), ..RoleOptions::default() };
        Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
    }

    pub(super) fn alter_user(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        let password = self.user_password()?;
        let options = RoleOptions { password, superuser: self.user_superuser(), ..RoleOptions::default() };
        Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
    }

    /// `WITH [HASHED] PASSWORD '…'`, if it is next.
    fn user_password(&mut self) -> Result<Option<Password>> {
        if !self.eat(Keyword::With) {
            return Ok(None);
        }
        if self.eat(Keyword::Generated) {
            self.expect(Keyword::Password)?;
            return Ok(Some(Password::Generated));
        }
        let hashed = self.eat(Keyword::Hashed);
        self.expect(Keyword::Password)?;
        let text = self.string("a password in quotes")?;
        Ok(Some(if hashed { Password::Hashed(text) } else { Password::Clear(text) }))
    }

    fn user_superuser(&mut self) -> Option<bool> {
        if self.eat(Keyword::Superuser) {
            return Some(true);
        }
        self.eat(Keyword::Nosuperuser).then_some(false)
    }

    pub(super) fn drop_role(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropRole(DropRole { name: self.role_name()?, if_exists }))
    }

    pub(super) fn add_identity(&mut self) -> Result<Statement> {
        self.bump();
        self.expect(Keyword::Identity)?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.identity()?;
        self.expect(Keyword::To)?;
        self.expect(Keyword::Role)?;
        Ok(Statement::AddIdentity(AddIdentity { identity, if_not_exists, role: self.role_name()? }))
    }

    pub(super) fn drop_identity(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropIdentity(DropIdentity { identity: self.identity()?, if_exists }))
    }

    fn identity(&mut self) -> Result<String> {
        if self.at_string() { self.string("identity") } else { self.identifier("identity") }
    }

    /// `LIST` of roles, users or permissions.
    pub(super) fn list(&mut self) -> Result<Statement> {
        self.bump();
        let kind = match self.current.kind {
            Kind::Keyword(Keyword::Roles) => ListedRoles::Roles,
            Kind::Keyword(Keyword::Users) => ListedRoles::Users,
            Kind::Keyword(Keyword::Superusers) => ListedRoles::Superusers,
            _ => return self.list_permissions(),
        };
        self.bump();
        let mut of = None;
        let mut no_recursive = false;
        if kind == ListedRoles::Roles {
            of = if self.eat(Keyword::Of) { Some(self.role_name()?) } else { None };
            no_recursive = self.eat(Keyword::Norecursive);
        }
        Ok(Statement::ListRoles(ListRoles { kind, of, no_recursive }))
    }

    fn list_permissions(&mut self) -> Result<Statement> {
        let permissions = self.permissions()?;
        let resource = if self.eat(Keyword::On) { Some(self.resource()?) } else { None };
        let of = if self.eat(Keyword::Of) { Some(self.role_name()?) } else { None };
        let no_recursive = self.eat(Keyword::Norecursive);
        Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, no_recursive }))
    }

    pub(super) fn grant_or_revoke(&mut self) -> Result<Statement> {
        let is_grant = self.at(Keyword::Grant);
        self.bump();
        let preposition = if is_grant { Keyword::To } else { Keyword::From };
        if (self.at_string() || self.at_identifier()) && self.followed_by(preposition) {
            let role = self.role_name()?;
            self.bump();
            let change = RoleMembership { role, member: self.role_name()? };
            return Ok(if is_grant { Statement::GrantRole(change) } else { Statement::RevokeRole(change) });
        }
        let permissions = self.permissions()?;
        self.expect(Keyword::On)?;
        let resource = self.resource()?;
        self.expect(preposition)?;
        let change = PermissionChange { permissions, resource, role: self.role_name()? };
        Ok(if is_grant { Statement::GrantPermissions(change) } else { Statement::RevokePermissions(change) })
    }

    /// `ALL [PERMISSIONS]` or a list.
    fn permissions(&mut self) -> Result<PermissionSet> {
        if self.eat(Keyword::All) {
            self.eat(Keyword::Permissions);
            return Ok(PermissionSet::All);
        }
        let permissions = self.comma_separated(|parser| {
            let permission = parser.permission()?;
            parser.eat(Keyword::Permission);
            Ok(permission)
        })?;
        Ok(PermissionSet::Only(permissions))
    }

    fn permission(&mut self) -> Result<Permission> {
        let permission = match self.current.kind {
            Kind::Keyword(Keyword::Create) => Permission::Create,
            Kind::Keyword(Keyword::Alter) => Permission::Alter,
            Kind::Keyword(Keyword::Drop) => Permission::Drop,
            Kind::Keyword(Keyword::Select) => Permission::Select,
            Kind::Keyword(Keyword::Modify) => Permission::Modify,
            Kind::Keyword(Keyword::Authorize) => Permission::Authorize,
            Kind::Keyword(Keyword::Describe) => Permission::Describe,
            Kind::Keyword(Keyword::Execute) => Permission::Execute,
            Kind::Keyword(Keyword::Unmask) => Permission::Unmask,
            Kind::Keyword(Keyword::SelectMasked) => Permission::SelectMasked,
            _ => return Err(self.unexpected("a permission")),
        };
        self.bump();
        Ok(permission)
    }

    fn resource(&mut self) -> Result<Resource> {
        let kind = self.current.kind;
        if kind == Kind::Keyword(Keyword::All) && self.all_of_a_resource_follows() {
            self.bump();
            return self.resource_of_all();
        }
        // Words that are free may name a table instead: `GRANT SELECT ON role TO x`.
        let names_table = self.followed_by(Keyword::To)
            || self.followed_by(Keyword::From)
            || self.followed_by(Keyword::Of)
            || self.followed_by_symbol(Symbol::Dot)
            || self.following.kind == Kind::End;
        match kind {
            Kind::Keyword(Keyword::Keyspace | Keyword::Schema) => {
                self.bump();
                Ok(Resource::Keyspace(self.identifier("keyspace name")?))
            }
            Kind::Keyword(Keyword::Role) if !names_table => {
                self.bump();
                Ok(Resource::Role(self.role_name()?))
            }
            Kind::Keyword(Keyword::Function) if !names_table => {
                self.bump();
                Ok(Resource::Function(self.function_signature("function name")?))
            }
            Kind::Keyword(Keyword::Mbean) if !names_table => {
                self.bump();
                Ok(Resource::Mbean(self.string("a string")?))
            }
            Kind::Keyword(Keyword::Mbeans) if !names_table => {
                self.bump();
                Ok(Resource::Mbeans(self.string("a string")?))
            }
            _ => {
                self.eat_table_keyword();
                Ok(Resource::Table(self.qualified_name("table name")?))
            }
        }
    }

    /// Whether `ALL` is followed by what there can be all of.
    fn all_of_a_resource_follows(&self) -> bool {
        matches!(
            self.following.kind,
            Kind::Keyword(Keyword::Keyspaces | Keyword::Tables | Keyword::Roles | Keyword::Functions | Keyword::Mbeans)
                | Kind::Keyword(Keyword::Columnfamilies)
        )
    }

    /// What follows `ALL`.
    fn resource_of_all(&mut self) -> Result<Resource> {
        if self.eat(Keyword::Keyspaces) {
            return Ok(Resource::AllKeyspaces);
        }
        if self.eat(Keyword::Roles) {
            return Ok(Resource::AllRoles);
        }
        if self.eat(Keyword::Mbeans) {
            return Ok(Resource::AllMbeans);
        }
        let functions = self.eat(Keyword::Functions);
        if functions && !self.at(Keyword::In) {
            return Ok(Resource::AllFunctions);
        }
        if !functions {
            self.bump();
        }
        self.expect(Keyword::In)?;
        if !self.eat_keyspace_keyword() {
            return Err(self.unexpected("KEYSPACE"));
        }
        let keyspace = self.identifier("keyspace name")?;
        Ok(if functions { Resource::AllFunctionsIn(keyspace) } else { Resource::AllTables(keyspace) })
    }
}
